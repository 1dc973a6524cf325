/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package termination holds the controller that deletes the content of terminating namespaces, and
// removes their finalizer. It replaces the namespace controller of kube-controller-manager on control
// planes without it, such as test environments. There, namespaces would stay Terminating indefinitely.
//
// It follows the namespaces design. It sets the phase, deletes the objects of every discovered
// resource, and removes the finalizer "kubernetes". If the finalizers were empty before the deletion,
// it sends a second DELETE. It deletes each object with its UID as a precondition. The deletion of a
// collection has no such precondition, and could delete the content of the next namespace of that name.
package termination
