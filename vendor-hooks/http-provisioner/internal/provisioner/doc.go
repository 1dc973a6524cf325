/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package provisioner provisions a resource outside of the cluster for each namespace over HTTP, and
// deprovisions it when the namespace is deleted. Every try of one operation for one namespace has the same
// idempotency key.
package provisioner
