/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// meddle sends writes of NamespaceLifecycles that the API never allows, as a user that has the rights of
// two initializers. The checks find every one that is acknowledged.
func (t *Traffic) meddle(ctx context.Context) {
	admin, err := t.admin("meddler-reads")
	if err != nil {
		return
	}
	core, err := kubernetes.NewForConfig(t.options.Servers[0])
	if err != nil {
		return
	}
	meddler, err := versioned.NewForConfig(t.user(t.options.Servers[0], "meddler", history.RoleMeddler, meddlerUser))
	if err != nil {
		return
	}
	for t.sleep(ctx, 300*time.Millisecond, 600*time.Millisecond) {
		names, err := Names(ctx, core, t.options.Prefix)
		if err != nil || len(names) == 0 {
			continue
		}
		lifecycle, err := admin.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, names[t.pick(len(names))], metav1.GetOptions{})
		if err == nil && t.forbidden(lifecycle) {
			_, _ = meddler.NsinitV1alpha1().NamespaceLifecycles().Initialize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{})
		}
	}
}

// forbidden changes a lifecycle in a way that the API never allows, and says whether there was one.
func (t *Traffic) forbidden(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	spec := &lifecycle.Spec
	if t.chance(0.1) { // a write never creates a lifecycle
		lifecycle.Name += "-none"
		lifecycle.UID, lifecycle.ResourceVersion = "", ""
		return true
	}
	if spec.Initializers == nil { // the list never grows again
		spec.Initializers = &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: plain}}}
		return true
	}
	pending := spec.Initializers.Pending
	mine := func(i int) bool { return i < len(pending) && slices.Contains(meddlerInitializers(), pending[i].Name) }
	others := slices.ContainsFunc(pending, func(p v1alpha1.NamespaceInitializer) bool { return !slices.Contains(meddlerInitializers(), p.Name) })
	switch {
	case mine(0) && others && t.chance(0.5): // others remove themselves
		spec.Initializers.Pending = nil
	case mine(0) && t.chance(0.5): // a write names the version that it changes
		spec.Initializers.Pending = pending[1:]
		lifecycle.ResourceVersion = ""
	case mine(1): // the first one acts first
		spec.Initializers.Pending = slices.Delete(slices.Clone(pending), 1, 2)
	default:
		return false
	}
	return true
}
