/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package installation

// BinaryVersion is the major and minor version of this source tree, for the libraries of Kubernetes. The linker sets the full version in k8s.io/component-base/version.
const BinaryVersion = "0.1"
