/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// header begins each rendered manifest. The command is the one that applies it.
const header = `# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# nsinit %s, from artifacts/deploy/overlays/%s, for Kubernetes %s: kubectl apply --server-side -f FILE
`

// manifests sets the digest of the image in each overlay, and writes the overlays rendered and as an archive.
func (r *release) manifests(image v1.Hash) error {
	overlays := filepath.Join(r.source, "artifacts", "deploy", "overlays")
	for _, overlay := range []string{"embedded", "ha"} { // the others are made of these
		if err := replace(filepath.Join(overlays, overlay, "kustomization.yaml"),
			"    newName: nsinit\n    newTag: dev\n", "    newName: "+r.repository+"\n    digest: "+image.String()+"\n"); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(overlays)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		for _, webhook := range []bool{false, true} {
			if err := r.render(overlays, entry.Name(), webhook); err != nil {
				return err
			}
		}
	}
	data, err := r.compressed(r.source)
	if err != nil {
		return err
	}
	return r.write("nsinit-manifests.tar.gz", data)
}

// render writes an overlay as one file, for Kubernetes versions with MutatingAdmissionPolicy, or with the webhook in its place.
func (r *release) render(overlays, overlay string, webhook bool) error {
	dir, file, kubernetes := filepath.Join(overlays, overlay), "install-"+overlay+".yaml", "1.36 and later"
	if webhook {
		made, err := os.MkdirTemp(overlays, "stamp-webhook-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(made) }()
		text := "sortOptions: {order: fifo}\nresources: [../" + overlay + "]\ncomponents: [../../components/stamp-webhook]\n"
		if err := os.WriteFile(filepath.Join(made, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			return err
		}
		dir, file, kubernetes = made, "install-"+overlay+"-stamp-webhook.yaml", "1.34 and 1.35"
	}
	text, err := build(dir)
	if err != nil {
		return err
	}
	return r.write(file, append(fmt.Appendf(nil, header, r.version, overlay, kubernetes), text...))
}

// build returns the objects of a kustomization, as kubectl kustomize prints them.
func build(dir string) ([]byte, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // the kustomization sets the order
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}
