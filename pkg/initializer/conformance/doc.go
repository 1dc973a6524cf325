/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package conformance tests an initializer, any initializer, on a cluster with nsinit: that it
// acts in its turn and not before, that it survives to be killed half-way, that it tries again
// after a refusal, and that it lets namespaces go that are deleted while it acts, or before.
//
// It is for authors: call Run from a test, with a function that starts the initializer and one
// that says whether a namespace has what the initializer brings. The cluster is one for tests:
// the suite registers initializers of its own, which every new namespace waits for meanwhile.
package conformance
