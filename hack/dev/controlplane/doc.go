/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package controlplane runs a real Kubernetes control plane with nsinit on this machine, as
// processes on loopback: for the dev program, which hack/dev/README.md describes, and for tests
// that start another topology from the same parts. Only tests and tools import it.
package controlplane
