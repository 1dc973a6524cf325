/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package lifecycle holds the controller that gives each namespace its record, opens its
// gate when every initializer is done, and lets the record leave when the namespace goes.
//
// What to do next is a pure function of the namespace and the record, in reconcile.go.
// What it says is done only if it still says so after both were read live, and every
// write carries the UID and the resourceVersion of what was read: two instances at once,
// or one that was stopped for long, cannot do harm.
package lifecycle
