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

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
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
		spec.Initializers = &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: holder}}}
		return true
	}
	mine := func(names []string) []string {
		return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(meddlerInitializers(), name) })
	}
	pending, acting := helper.Pending(lifecycle), mine(helper.CurrentInitializers(lifecycle))
	waiting := slices.DeleteFunc(mine(slices.Clone(pending)), func(name string) bool { return slices.Contains(acting, name) })
	others := len(mine(slices.Clone(pending))) < len(pending)
	switch {
	case others && t.chance(0.5): // others remove themselves
		spec.Initializers.Pending = nil
	case len(waiting) > 0: // those for which it waits act first
		helper.RemovePending(lifecycle, waiting[0])
	case len(acting) > 0: // a write names the version that it changes
		helper.RemovePending(lifecycle, acting[0])
		lifecycle.ResourceVersion = ""
	default:
		return false
	}
	return true
}
