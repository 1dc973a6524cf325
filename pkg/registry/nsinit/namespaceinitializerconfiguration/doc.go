/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaceinitializerconfiguration declares the parts of a configuration and which
// endpoint owns each of them.
package namespaceinitializerconfiguration
