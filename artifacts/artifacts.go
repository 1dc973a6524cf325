/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package artifacts has the manifests in this folder that programs of nsinit read.
package artifacts

import (
	"embed"

	"sigs.k8s.io/yaml"
)

//go:embed policies early-writes/webhook.yaml deploy/base/in-force/apiservice.yaml
//go:embed deploy/components/stamp-webhook/*.yaml deploy/components/strict-name-reuse/policy.yaml deploy/components/objects/*.yaml
var files embed.FS

// Policies returns the manifests of the policies that every installation needs, which policies/kustomization.yaml lists, with the
// stamp or without it.
func Policies(stamp bool) (manifests []string) {
	var list struct{ Resources []string }
	_ = yaml.Unmarshal([]byte(read("policies/kustomization.yaml")), &list) // a test reads it, too
	for _, name := range list.Resources {
		if stamp || name != "stamp.yaml" {
			manifests = append(manifests, read("policies/"+name))
		}
	}
	return manifests
}

// Stamp returns the binding of the stamp, which nsinit-controller-manager creates.
func Stamp() string { return read("policies/in-force/stamp.yaml") }

// StampWebhook returns the webhook that nsinit-controller-manager creates in place of the binding of the stamp.
func StampWebhook() string { return read("deploy/components/stamp-webhook/in-force.yaml") }

// OpenedBy returns the webhook that records who opens a namespace by hand, where no policy can.
func OpenedBy() string { return read("deploy/components/stamp-webhook/webhook.yaml") }

// GuardCreate returns the binding of the guard of creations, which nsinit-controller-manager creates.
func GuardCreate() string { return read("policies/in-force/guard-create.yaml") }

// APIService returns the registration of nsinit's API, which nsinit-controller-manager creates.
func APIService() string { return read("deploy/base/in-force/apiservice.yaml") }

// EarlyWrites returns the webhook that asks clients to repeat what they write too early.
func EarlyWrites() string { return read("early-writes/webhook.yaml") }

// StrictNameReuse returns the policy of strict-name-reuse, and its binding.
func StrictNameReuse() string { return read("deploy/components/strict-name-reuse/policy.yaml") }

// ObjectsGuard returns the policies of the component objects, and their bindings.
func ObjectsGuard() string { return read("deploy/components/objects/guard.yaml") }

// ObjectsStamp returns the policies of pods and of Jobs that nsinit-controller-manager completes and creates.
func ObjectsStamp() string { return read("deploy/components/objects/stamp.yaml") }

// read returns an embedded file, which a test reads, too.
func read(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(data)
}
