/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package e2e tests the behaviour of nsinit as a whole, on a real control plane that hack/dev runs: real kube-apiserver,
// kube-controller-manager, etcd and kubectl. The tests are built only with the tag e2e. make e2e starts control planes for them.
// test/packaging tests how nsinit is delivered.
package e2e
