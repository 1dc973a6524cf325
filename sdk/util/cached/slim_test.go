/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func namespace(change func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "uid", ResourceVersion: "5", Annotations: map[string]string{"a": "b"}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	change(n)
	return n
}

func TestTransforms(t *testing.T) {
	closed := func(n *corev1.Namespace) { n.Labels = map[string]string{v1alpha1.LabelInitializing: ""} }
	managed := func(n *corev1.Namespace) { n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}} }
	large := namespace(func(n *corev1.Namespace) {
		closed(n)
		managed(n)
		n.Labels["team"], n.Annotations[v1alpha1.AnnotationCreatedBy], n.Annotations[v1alpha1.AnnotationCreatedByGroups] = "a", "jane", "many"
		n.Annotations[v1alpha1.AnnotationOnBehalfOf] = "john"
		n.Finalizers = []string{"a.example.com/x", "b.example.com/x", v1alpha1.ContentFinalizer}
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, "a.example.com/x", "b.example.com/x"}
		n.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	})
	controlled := namespace(func(n *corev1.Namespace) {
		closed(n)
		n.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "jane", v1alpha1.AnnotationOnBehalfOf: "john"}
		n.Finalizers = []string{"a.example.com/x", v1alpha1.ContentFinalizer}
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, "a.example.com/x"}
	})
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: *large.ObjectMeta.DeepCopy()}
	selected := &metav1.PartialObjectMetadata{ObjectMeta: *large.ObjectMeta.DeepCopy()}
	selected.ManagedFields, selected.Finalizers, selected.OwnerReferences = nil, nil, nil
	tombstone := cache.DeletedFinalStateUnknown{Key: "ns"}
	for name, test := range map[string]struct {
		transform   cache.TransformFunc
		given, want any
	}{
		"managed fields": {WithoutManagedFields, namespace(managed), namespace(func(*corev1.Namespace) {})},
		"closed":         {ServedNamespaces, namespace(func(n *corev1.Namespace) { closed(n); managed(n) }), namespace(closed)},
		"open": {ServedNamespaces, namespace(func(n *corev1.Namespace) {
			n.Labels, n.Annotations[v1alpha1.AnnotationCreatedBy], n.Finalizers = map[string]string{"team": "a"}, "jane", []string{"a.example.com/x"}
		}), namespace(func(n *corev1.Namespace) {
			n.Labels, n.Annotations = map[string]string{"team": "a"}, map[string]string{v1alpha1.AnnotationCreatedBy: "jane"}
		})},
		"controlled":              {ControlledNamespaces, large.DeepCopy(), controlled},
		"controlled, again":       {ControlledNamespaces, controlled.DeepCopy(), controlled},
		"metadata":                {NamespaceMetadata, metadata, selected},
		"a tombstone":             {WithoutManagedFields, tombstone, tombstone},
		"a tombstone of the same": {ServedNamespaces, tombstone, tombstone},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.transform(test.given)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
