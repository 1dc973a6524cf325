/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cached

import "k8s.io/client-go/tools/cache"

// Object returns the deleted object, and whether it is a T. If the informer missed the deletion, it is the
// last known state.
func Object[T any](object any) (T, bool) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	typed, ok := object.(T)
	return typed, ok
}
