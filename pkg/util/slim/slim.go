/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package slim makes the objects smaller that informers keep.
package slim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// WithoutManagedFields is a cache.TransformFunc that removes metadata.managedFields. A server keeps those that it has when
// an update has none.
func WithoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// ClosedNamespaces is a cache.TransformFunc that keeps of an open namespace only what identifies it. The result shows that it
// is open, because it has no labels.
func ClosedNamespaces(object any) (any, error) {
	namespace, ok := object.(*corev1.Namespace)
	if !ok || helper.IsClosed(namespace) {
		return WithoutManagedFields(object)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion,
		CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp,
	}}, nil
}
