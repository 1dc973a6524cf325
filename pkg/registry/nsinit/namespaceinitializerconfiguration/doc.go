/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaceinitializerconfiguration decides what each endpoint of a
// configuration may change: the main resource the initializers and metadata, status
// nothing but status, finalize nothing but spec.finalizers.
package namespaceinitializerconfiguration
