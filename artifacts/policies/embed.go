/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package policies holds the manifests of the policies that every installation needs.
package policies

import "embed"

//go:embed stamp.yaml guard-create.yaml guard.yaml gate.yaml freeze.yaml content.yaml kustomization.yaml in-force
var files embed.FS

// Files returns the manifests, and kustomization.yaml, which lists those that an administrator applies.
func Files() embed.FS { return files }

// Manifests returns the content of the manifests that an administrator applies, with or without the stamp.
func Manifests(stamp bool) ([]string, error) {
	names := []string{"gate.yaml", "guard.yaml", "freeze.yaml", "content.yaml", "guard-create.yaml"}
	if stamp {
		names = append(names, "stamp.yaml")
	}
	var manifests []string
	for _, name := range names {
		manifest, err := read(name)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, manifest)
	}
	return manifests, nil
}

// Stamp returns the binding with which nsinit-controller-manager brings the stamp into force.
func Stamp() (string, error) { return read("in-force/stamp.yaml") }

// GuardCreate returns the binding with which nsinit-controller-manager brings the guard of creation into force.
func GuardCreate() (string, error) { return read("in-force/guard-create.yaml") }

func read(name string) (string, error) {
	data, err := files.ReadFile(name)
	return string(data), err
}
