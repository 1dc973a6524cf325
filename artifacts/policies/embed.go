/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package policies holds the manifests of the policies that every installation needs.
package policies

import "embed"

// Files are the manifests of kustomization.yaml.
//
//go:embed stamp.yaml guard-create.yaml guard.yaml gate.yaml freeze.yaml content.yaml kustomization.yaml
var files embed.FS

// Files returns the manifests, and kustomization.yaml, which lists them.
func Files() embed.FS { return files }

// Manifests returns the content of the manifests, with or without the stamp.
func Manifests(stamp bool) ([]string, error) {
	names := []string{"gate.yaml", "guard.yaml", "freeze.yaml", "content.yaml", "guard-create.yaml"}
	if stamp {
		names = append(names, "stamp.yaml")
	}
	var manifests []string
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, string(data))
	}
	return manifests, nil
}
