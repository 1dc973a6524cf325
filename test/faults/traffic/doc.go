/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package traffic is what clients do while faults happen: tenants that create, delete and recreate
// namespaces, write into them as early as they can, and start pods, Deployments and Jobs; initializers on
// the SDK that crash; administrators that change configurations; and meddlers, who send writes that nsinit
// refuses. Every request is recorded.
package traffic
