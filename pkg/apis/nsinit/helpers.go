/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

// Terminable is an object that is deleted in two steps: it is removed from storage once each
// participant in its spec.finalizers has acted.
type Terminable interface {
	// SpecFinalizers returns the participants that have not acted.
	SpecFinalizers() []FinalizerName
	// SetSpecFinalizers replaces them.
	SetSpecFinalizers([]FinalizerName)
}

// SpecFinalizers implements Terminable.
func (c *NamespaceInitializerConfiguration) SpecFinalizers() []FinalizerName {
	return c.Spec.Finalizers
}

// SetSpecFinalizers implements Terminable.
func (c *NamespaceInitializerConfiguration) SetSpecFinalizers(finalizers []FinalizerName) {
	c.Spec.Finalizers = finalizers
}

// SpecFinalizers implements Terminable.
func (l *NamespaceLifecycle) SpecFinalizers() []FinalizerName { return l.Spec.Finalizers }

// SetSpecFinalizers implements Terminable.
func (l *NamespaceLifecycle) SetSpecFinalizers(finalizers []FinalizerName) {
	l.Spec.Finalizers = finalizers
}
