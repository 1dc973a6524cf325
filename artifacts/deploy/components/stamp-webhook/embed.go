/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package stampwebhook holds the manifests of the webhooks that stamp namespaces if kube-apiserver
// has no MutatingAdmissionPolicy.
package stampwebhook

import _ "embed"

//go:embed webhook.yaml
var webhook string

//go:embed in-force.yaml
var inForce string

// Webhook returns the manifest of the webhook that records who opens a namespace by hand.
func Webhook() string { return webhook }

// Stamp returns the manifest of the webhook that nsinit-controller-manager creates in place of the binding of the stamp.
func Stamp() string { return inForce }
