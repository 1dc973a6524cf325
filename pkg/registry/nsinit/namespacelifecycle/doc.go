/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespacelifecycle decides what each endpoint of a record may change: the
// main resource metadata alone, status nothing but status, finalize nothing but
// spec.finalizers, initialize nothing but spec.initializers. What follows from a change,
// such as the phase, the server writes in the same update; progress.go derives it.
package namespacelifecycle
