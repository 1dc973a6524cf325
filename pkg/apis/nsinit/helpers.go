/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

// Terminable is what the two kinds of the group have in common: they disappear in two
// steps, and only when everybody in their spec.finalizers has acted. Code that serves
// both kinds is written against it.
type Terminable interface {
	// SpecFinalizers returns the participants that have not acted yet.
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
