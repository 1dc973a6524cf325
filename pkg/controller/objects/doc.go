/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package objects holds new pods and Jobs until the initializers of the InitializerConfigurations are done. The controller
// compiles all configurations into MutatingAdmissionPolicies for pods and Jobs, so kube-apiserver needs no other program when an
// object is created. It verifies in dry runs that kube-apiserver evaluates the policies, enforces deadlines, and
// releases the objects of deleted configurations. While the component objects is not installed, it only says so.
package objects
