/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package lifecycle holds the controller that creates the NamespaceLifecycle of each namespace,
// opens the gate when every initializer is done, and deletes the lifecycle with the namespace. It also
// reports which namespaces are frozen.
//
// The next step is a pure function of the namespace and the lifecycle, in reconcile.go. The
// controller takes the step only if live reads of both objects lead to the same step, unless an old
// version of the objects is evidence too. Every write has the UID and the resourceVersion of the
// object that was read. So two instances that act at the same time, or an instance that was paused,
// do no harm.
package lifecycle
