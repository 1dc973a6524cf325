//go:build tools

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package kubernetes pins the programs of Kubernetes 1.37, etcd, and the aggregated API server
// that the end-to-end tests delete from.
package kubernetes

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/sample-apiserver"
)
