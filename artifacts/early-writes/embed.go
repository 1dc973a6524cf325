/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package earlywrites holds the manifest of the webhook that makes clients retry early writes.
package earlywrites

import _ "embed"

//go:embed webhook.yaml
var webhook string

// Webhook returns the manifest.
func Webhook() string { return webhook }
