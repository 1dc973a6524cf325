/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaces sets the conditions of namespaces, which are not of type metav1.Condition, and lists the objects
// in a namespace.
package namespaces
