/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package stamp closes the gate of new namespaces and records who created them, where kube-apiserver
// has no MutatingAdmissionPolicy that could do so itself. It writes what artifacts/policies/stamp.yaml
// writes, and leaves the same namespaces alone. The guard sees that it did.
package stamp
