/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package requiredobjects knows which objects that every usable namespace has do not exist yet in a
// namespace, such as its ServiceAccount "default".
//
// It watches the metadata of each required object in all namespaces. A namespace therefore costs no
// separate request. A watch can be behind, in two ways:
//
//   - It lacks an object that exists. The namespace waits for the event, or for the bound. At the bound,
//     Confirm reads the object live.
//   - It still has an object of a former namespace of the same name. Kubernetes deletes these objects
//     before it removes the namespace, and accepts none while a namespace terminates. So an object that
//     was created at or after the namespace belongs to it. kube-controller-manager begins to delete
//     five seconds after the namespace was deleted, which is more than the whole seconds of creation
//     times and common differences between the clocks of several kube-apiservers can hide. An object that
//     was created before the namespace is a former one, or its kube-apiserver's clock is behind. A live
//     read decides this, because the namespace exists when the read begins.
//
// The wait is bounded, and the bound adapts. In a burst, kube-controller-manager creates the objects at a
// limited rate. So the wait ends when no such object appeared in any namespace for a timeout, and after a
// minute at the latest.
package requiredobjects
