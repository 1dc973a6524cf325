/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package stampwebhook holds the manifest of the webhook that stamps namespaces if kube-apiserver
// has no MutatingAdmissionPolicy.
package stampwebhook

import _ "embed"

//go:embed webhook.yaml
var webhook string

// Webhook returns the manifest.
func Webhook() string { return webhook }
