/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package strictnamereuse holds the manifest of the policy that delays the reuse of namespace names.
package strictnamereuse

import _ "embed"

//go:embed policy.yaml
var policy string

// Policy returns the manifest of the policy and its binding.
func Policy() string { return policy }
