/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package terminable holds what the storages of both kinds share: a deletion in two
// steps, and the subresources. An object first becomes Terminating; it leaves storage
// when everybody in its spec.finalizers has acted, which is told through the finalize
// subresource.
package terminable
