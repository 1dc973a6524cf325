/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package traffic is what clients do while faults happen: tenants that create, delete and recreate
// namespaces and write into them as early as they can, initializers on the SDK that crash, and
// administrators that change configurations. Every request is recorded.
package traffic
