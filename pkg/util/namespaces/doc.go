/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaces reads the phase of namespaces, sets their conditions, which are not of type metav1.Condition, and lists the objects
// in a namespace.
package namespaces
