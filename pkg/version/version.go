/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package version holds the version of nsinit.
package version

// Binary is the major and minor version of this source tree, for the libraries of Kubernetes. The linker sets the full version in k8s.io/component-base/version.
const Binary = "0.1"
