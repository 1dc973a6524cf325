/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package rollout gives namespaces that exist already the objects of populations with scope All, or reports what it would
// do. It acts on a few namespaces at a time and pauses when objects are refused. Its state is in the inventories of the
// namespaces, so that another process can continue.
package rollout
