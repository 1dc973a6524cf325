/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package e2e tests nsinit as a whole, on a real control plane that hack/dev runs: real
// kube-apiserver, kube-controller-manager, etcd and kubectl. The tests are built with the
// tag e2e alone. make e2e starts a control plane for them.
package e2e
