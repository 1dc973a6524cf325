/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package tombstone reads what informers hand to the handlers of deletions.
package tombstone

import "k8s.io/client-go/tools/cache"

// Object returns the object that a handler was called for, and whether it is a T. Of an object whose
// deletion the informer did not see, it is the last known state.
func Object[T any](object any) (T, bool) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	typed, ok := object.(T)
	return typed, ok
}
