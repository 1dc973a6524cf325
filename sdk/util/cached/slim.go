/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cached makes the objects smaller that informers keep, and lets callers share what one of them reads.
package cached

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// WithoutManagedFields is a cache.TransformFunc that removes metadata.managedFields. A server keeps those that it has when
// an update has none.
func WithoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// NamespaceMetadata is a cache.TransformFunc that keeps of the metadata of a namespace what populations select by and read.
func NamespaceMetadata(object any) (any, error) {
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		namespace.ManagedFields, namespace.Finalizers, namespace.OwnerReferences = nil, nil, nil
	}
	return object, nil
}

// ServedNamespaces is a cache.TransformFunc that keeps of a namespace what users see in its AccessibleNamespace, and of a closed one also
// what selects its initializers.
func ServedNamespaces(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	kept := identity(namespace)
	kept.Labels, kept.Status = namespace.Labels, namespace.Status
	kept.Annotations = only(namespace.Annotations, v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationOnBehalfOf)
	if helper.IsClosed(namespace) {
		kept.Annotations = namespace.Annotations
	}
	return kept, nil
}

// ControlledNamespaces is a cache.TransformFunc that keeps of a namespace what nsinit's controllers decide by: nsinit's labels,
// annotations and finalizers, the conditions, and whether another finalizer exists. Tenants choose the size of the rest. To write
// the result, use utilnamespaces.PatchStatus.
func ControlledNamespaces(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	kept := identity(namespace)
	kept.Status = namespace.Status
	kept.Labels = only(namespace.Labels, v1alpha1.LabelInitializing, v1alpha1.LabelFrozen)
	kept.Annotations = only(namespace.Annotations, v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationOnBehalfOf, v1alpha1.AnnotationOpenedBy,
		v1alpha1.AnnotationFrozenBy, v1alpha1.AnnotationFrozenReason, v1alpha1.AnnotationUnfrozenBy, v1alpha1.AnnotationUnfrozenReason)
	kept.Finalizers = withOneOther(namespace.Finalizers, v1alpha1.NamespaceFinalizer, v1alpha1.ContentFinalizer)
	kept.Spec.Finalizers = withOneOther(namespace.Spec.Finalizers, corev1.FinalizerKubernetes, v1alpha1.NameReuseFinalizer)
	return kept, nil
}

func identity(n *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, GenerateName: n.GenerateName, UID: n.UID, ResourceVersion: n.ResourceVersion,
		CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp}}
}

func only(all map[string]string, keys ...string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return kept
}

// withOneOther keeps the given finalizers, and the first other one.
func withOneOther[F ~string](all []F, own ...F) []F {
	first := slices.IndexFunc(all, func(f F) bool { return !slices.Contains(own, f) })
	var kept []F
	for i, finalizer := range all {
		if i == first || slices.Contains(own, finalizer) {
			kept = append(kept, finalizer)
		}
	}
	return kept
}
