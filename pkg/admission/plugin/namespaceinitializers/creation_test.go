/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializers

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// TestCreation: a creation reads the namespace and the configurations once. Validate still refuses what another
// plugin changed, and the plan of another namespace does not count.
func TestCreation(t *testing.T) {
	tests := map[string]struct {
		change   func(*nsinit.NamespaceLifecycle)
		reads    int
		conflict bool
	}{
		"unchanged": {reads: 1},
		"an entry of the plan was changed": {reads: 1, conflict: true,
			change: func(l *nsinit.NamespaceLifecycle) { l.Spec.Plan[0].Name = "forged.example.com" }},
		"the plan was removed": {reads: 1, conflict: true,
			change: func(l *nsinit.NamespaceLifecycle) { l.Spec.Plan, l.Spec.Initializers = nil, nil }},
		"it is for another namespace": {reads: 2,
			change: func(l *nsinit.NamespaceLifecycle) { l.Name = "another" }},
		"it is for another namespace of the name": {reads: 2, conflict: true,
			change: func(l *nsinit.NamespaceLifecycle) { l.Spec.NamespaceUID = "another" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := WithCreation(genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "u"}))
			defer cancel()
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > timing.CreateTimeout {
				t.Errorf("it ends at %s", deadline)
			}
			p, lifecycle := newPlugin(&source{lists: [][]v1alpha1.NamespaceInitializerConfiguration{list("a.example.com")}}), newTestLifecycle()
			read, reads := p.namespaces, 0
			p.SetNamespaceReader(func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error) {
				reads++
				return read(ctx, name, options)
			})
			if err := p.Admit(ctx, create(lifecycle, ""), nil); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(lifecycle)
			}
			if err := p.Validate(ctx, create(lifecycle, ""), nil); apierrors.IsConflict(err) != test.conflict || err != nil && !test.conflict {
				t.Errorf("got %v", err)
			}
			if reads != test.reads {
				t.Errorf("%d reads, want %d", reads, test.reads)
			}
		})
	}
}
