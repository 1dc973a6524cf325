/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package conformance tests an initializer on a cluster with nsinit. The initializer acts in its turn and not before, and
// does not disturb one that acts at the same time. A kill at any step does no harm. It retries after a refusal, and
// releases namespaces that are deleted during or before its turn.
//
// An initializer of pods and Jobs acts on these objects in its turn and not before, and removes only its own name. After a
// kill or a refusal, it acts again. It reports that it is served.
//
// It is for authors: call Run from a test, with a function that starts the initializer and one that checks its contents
// in a namespace, or what it has done with an object. Use a test cluster: the suite registers initializers, and every new
// namespace waits for them.
package conformance
