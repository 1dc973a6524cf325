/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

func newClient(t *testing.T) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return metadatafake.NewSimpleMetadataClient(scheme)
}

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

// change lists the namespace shop, calls register, and changes the namespace.
func change(t *testing.T, register func(*Namespaces) error, change func(*metav1.PartialObjectMetadata)) {
	t.Helper()
	client := newClient(t)
	if err := client.Tracker().Create(namespacesResource(), metadataOf("shop", nil), ""); err != nil {
		t.Fatal(err)
	}
	n, err := NewNamespaces(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go n.Run(ctx)
	synctest.Wait()
	if err := register(n); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if err := client.Tracker().Update(namespacesResource(), metadataOf("shop", change), ""); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	cancel()
	synctest.Wait()
}

func namespacesResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("namespaces")
}

// TestOnLabels: only a change of what populations select by is reported.
func TestOnLabels(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		want   bool
	}{
		"nothing":                 {func(*metav1.PartialObjectMetadata) {}, false},
		"a label":                 {func(n *metav1.PartialObjectMetadata) { n.Labels["team"] = "b" }, true},
		"a label is removed":      {func(n *metav1.PartialObjectMetadata) { delete(n.Labels, "team") }, true},
		"the first label":         {func(n *metav1.PartialObjectMetadata) { n.Labels["tier"] = "x" }, true},
		"it opens":                {func(n *metav1.PartialObjectMetadata) { delete(n.Labels, v1alpha1.LabelInitializing) }, false},
		"another annotation":      {func(n *metav1.PartialObjectMetadata) { n.Annotations["x"] = "y" }, false},
		"the creator":             {func(n *metav1.PartialObjectMetadata) { n.Annotations[v1alpha1.AnnotationCreatedBy] = "bob" }, true},
		"the creator is no label": {func(n *metav1.PartialObjectMetadata) { n.Labels[v1alpha1.AnnotationCreatedBy] = "alice" }, true},
		"another namespace of that name": {func(n *metav1.PartialObjectMetadata) {
			n.UID, n.Labels["team"] = "another", "b"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				change(t, func(n *Namespaces) error { return n.OnLabels(func(name string) { got = append(got, name) }) }, test.change)
				if (len(got) == 1 && got[0] == "shop") != test.want || len(got) > 1 {
					t.Errorf("reported %v", got)
				}
			})
		})
	}
}

// TestOnChange: a change that cannot matter to a population is not reported.
func TestOnChange(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		want   bool
	}{
		"nothing":            {func(*metav1.PartialObjectMetadata) {}, false},
		"another annotation": {func(n *metav1.PartialObjectMetadata) { n.Annotations["x"] = "y" }, false},
		"a label":            {func(n *metav1.PartialObjectMetadata) { n.Labels["team"] = "b" }, true},
		"the creator":        {func(n *metav1.PartialObjectMetadata) { n.Annotations[v1alpha1.AnnotationCreatedBy] = "bob" }, true},
		"it opens":           {func(n *metav1.PartialObjectMetadata) { delete(n.Labels, v1alpha1.LabelInitializing) }, true},
		"it opens, and is being deleted": {func(n *metav1.PartialObjectMetadata) {
			delete(n.Labels, v1alpha1.LabelInitializing)
			n.DeletionTimestamp = &now
		}, false},
		"another namespace of that name": {func(n *metav1.PartialObjectMetadata) { n.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := -1 // the namespace is listed
				change(t, func(n *Namespaces) error { return n.OnChange(func() { got++ }) }, test.change)
				if (got == 1) != test.want || got > 1 {
					t.Errorf("reported %d times", got)
				}
			})
		})
	}
}

// TestList: namespaces are in the order of their names.
func TestList(t *testing.T) {
	n, err := NewNamespaces(newClient(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c", "a"} {
		if err := n.informer.GetStore().Add(metadataOf(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if list := n.List(); len(list) != 3 || list[0].Name != "a" || list[1].Name != "b" || list[2].Name != "c" {
		t.Errorf("listed %v", list)
	}
}

// TestForbidden: the log says what does not work while the namespaces cannot be watched.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t)
		client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(namespacesResource().GroupResource(), "", nil)
		})
		n, err := NewNamespaces(client)
		if err != nil {
			t.Fatal(err)
		}
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		go n.Run(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); n.HasSynced() || !strings.Contains(log, "Cannot watch namespaces: changed labels take effect only at resync, and no rollout runs; grant list and watch") {
			t.Errorf("synced %t, log: %s", n.HasSynced(), log)
		}
	})
}
