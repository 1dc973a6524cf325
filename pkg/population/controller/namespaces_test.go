/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// metadataOf returns a closed namespace with a label.
func metadataOf(name string, change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"team": "a", v1alpha1.LabelInitializing: "true"}, Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"},
	}}
	if change != nil {
		change(n)
	}
	return n
}

// newController returns a Controller that is not running.
func newController(t *testing.T) *Controller {
	t.Helper()
	c, err := New(Config{Metadata: newWorld(t).metadata, Nsinit: nsinitfake.NewClientset(), Exemptions: noExemptions{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func namespacesResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("namespaces")
}

// TestNamespaceUpdated: only a change that can matter to a population has effects. If it is of what populations select by, the namespace
// is reconciled. If it is also of whether the namespace is open, populations are rolled out.
func TestNamespaceUpdated(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change            func(*metav1.PartialObjectMetadata)
		changes, rollouts int
	}{
		"nothing":                 {func(*metav1.PartialObjectMetadata) {}, 0, 0},
		"a label":                 {func(n *metav1.PartialObjectMetadata) { n.Labels["team"] = "b" }, 1, 1},
		"a label is removed":      {func(n *metav1.PartialObjectMetadata) { delete(n.Labels, "team") }, 1, 1},
		"the first label":         {func(n *metav1.PartialObjectMetadata) { n.Labels["tier"] = "x" }, 1, 1},
		"it opens":                {func(n *metav1.PartialObjectMetadata) { delete(n.Labels, v1alpha1.LabelInitializing) }, 0, 1},
		"another annotation":      {func(n *metav1.PartialObjectMetadata) { n.Annotations["x"] = "y" }, 0, 0},
		"the creator":             {func(n *metav1.PartialObjectMetadata) { n.Annotations[v1alpha1.AnnotationCreatedBy] = "bob" }, 1, 1},
		"on behalf of another":    {func(n *metav1.PartialObjectMetadata) { n.Annotations[v1alpha1.AnnotationOnBehalfOf] = "bob" }, 1, 1},
		"the creator is no label": {func(n *metav1.PartialObjectMetadata) { n.Labels[v1alpha1.AnnotationCreatedBy] = "alice" }, 1, 1},
		"it opens, and is being deleted": {func(n *metav1.PartialObjectMetadata) {
			delete(n.Labels, v1alpha1.LabelInitializing)
			n.DeletionTimestamp = &now
		}, 0, 0},
		"another namespace of that name": {func(n *metav1.PartialObjectMetadata) {
			n.UID, n.Labels["team"] = "another", "b"
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newController(t)
				if err := c.informers.Nsinit().V1alpha1().NamespacePopulations().Informer().GetStore().Add(
					&v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll}}); err != nil {
					t.Fatal(err)
				}
				c.namespaceUpdated(metadataOf("shop", nil), metadataOf("shop", test.change))
				time.Sleep(settle)
				synctest.Wait()
				if c.changes.Len() != test.changes || c.rollouts.Len() != test.rollouts {
					t.Errorf("%d namespaces and %d rollouts are queued", c.changes.Len(), c.rollouts.Len())
				}
				for _, queue := range []workers.Queue{c.changes, c.repairs, c.rollouts, c.statuses, c.readiness} {
					queue.ShutDown()
				}
			})
		})
	}
}

// TestListNamespaces: namespaces are in the order of their names.
func TestListNamespaces(t *testing.T) {
	c := newController(t)
	for _, name := range []string{"b", "c", "a"} {
		if err := c.namespaces.GetStore().Add(metadataOf(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if list := c.listNamespaces(); len(list) != 3 || list[0].Name != "a" || list[1].Name != "b" || list[2].Name != "c" {
		t.Errorf("listed %v", list)
	}
}

// TestForbidden: the log says what does not work while the namespaces cannot be watched.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newWorld(t).metadata
		client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(namespacesResource().GroupResource(), "", nil)
		})
		n, err := newNamespaces(client)
		if err != nil {
			t.Fatal(err)
		}
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		go n.RunWithContext(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); n.HasSynced() || !strings.Contains(log, "Cannot watch namespaces: changed labels take effect only at resync, and no rollout runs; grant list and watch") {
			t.Errorf("synced %t, log: %s", n.HasSynced(), log)
		}
	})
}
