//go:build tools

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package kubernetes pins the programs of Kubernetes 1.34.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
