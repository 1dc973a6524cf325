/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package existing

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

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
				client := newClient(t)
				resource := corev1.SchemeGroupVersion.WithResource("namespaces")
				if err := client.Tracker().Create(resource, metadataOf("shop", nil), ""); err != nil {
					t.Fatal(err)
				}
				n, err := New(client)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				if err := n.OnLabels(func(name string) { got = append(got, name) }); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go n.Run(ctx)
				synctest.Wait()
				if err := client.Tracker().Update(resource, metadataOf("shop", test.change), ""); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				cancel()
				synctest.Wait()
				if (len(got) == 1 && got[0] == "shop") != test.want || len(got) > 1 {
					t.Errorf("reported %v", got)
				}
			})
		})
	}
}
