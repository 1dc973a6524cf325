/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package termination holds the controller that empties namespaces that are being deleted,
// and lets them go. Where kube-controller-manager runs, its namespace controller does that.
// On a bare control plane, in a test environment for instance, nobody does, and namespaces
// stay Terminating for ever.
//
// It follows the namespaces design: the phase first, then the content, of every resource that
// discovery tells of, then the finalizer "kubernetes", and in the end a second DELETE where the
// first one found the finalizers empty. Objects are deleted one by one, each with its UID as a
// precondition. A deletion of a collection would be one request, but it goes by names alone: if
// the namespace were created again meanwhile, it would take the new content with it.
package termination
