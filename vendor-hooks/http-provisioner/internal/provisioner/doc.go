/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package provisioner provisions something outside of the cluster for each namespace over HTTP,
// and takes it away when the namespace is deleted. Every try of one operation for one namespace
// carries the same idempotency key.
package provisioner
