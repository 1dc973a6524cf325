/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespacelifecycle declares the parts of a NamespaceLifecycle and which endpoint owns each
// of them. The server writes what follows from a change, such as the phase, in the same update:
// progress.go derives it.
package namespacelifecycle
