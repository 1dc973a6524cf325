/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import "github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"

// Terminable is an object that is deleted in two steps: it is removed from storage once each
// participant in its spec.finalizers has acted.
type Terminable interface {
	// SpecFinalizers returns the participants that have not acted.
	SpecFinalizers() []v1alpha1.FinalizerName
	// SetSpecFinalizers replaces them.
	SetSpecFinalizers([]v1alpha1.FinalizerName)
}

// SpecFinalizers implements Terminable.
func (c *NamespaceInitializerConfiguration) SpecFinalizers() []v1alpha1.FinalizerName {
	return c.Spec.Finalizers
}

// SetSpecFinalizers implements Terminable.
func (c *NamespaceInitializerConfiguration) SetSpecFinalizers(finalizers []v1alpha1.FinalizerName) {
	c.Spec.Finalizers = finalizers
}

// SpecFinalizers implements Terminable.
func (l *NamespaceLifecycle) SpecFinalizers() []v1alpha1.FinalizerName { return l.Spec.Finalizers }

// SetSpecFinalizers implements Terminable.
func (l *NamespaceLifecycle) SetSpecFinalizers(finalizers []v1alpha1.FinalizerName) {
	l.Spec.Finalizers = finalizers
}
