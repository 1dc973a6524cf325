/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package stamp closes the gate of new namespaces and stores their creator, for versions of
// kube-apiserver without MutatingAdmissionPolicy. It makes the same changes as
// artifacts/policies/stamp.yaml, with the same exemptions. The guard checks the changes.
package stamp
