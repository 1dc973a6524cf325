/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package version holds the version of nsinit.
package version

// Binary is the version that this source tree builds: major and minor, as emulation
// versions and feature gates use it. The full version of a build is stamped into
// k8s.io/component-base/version by the linker.
const Binary = "0.1"
