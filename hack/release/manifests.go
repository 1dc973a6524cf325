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

// header begins each rendered manifest. The command is the one that renders it.
const header = `# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# nsinit %s, from artifacts/deploy/overlays/%s: kubectl apply --server-side -f FILE
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
		options := krusty.MakeDefaultOptions()
		options.Reorder = krusty.ReorderOptionUnspecified // the overlays set the order
		resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(overlays, entry.Name()))
		if err != nil {
			return err
		}
		text, err := resources.AsYaml()
		if err != nil {
			return err
		}
		if err := r.write("install-"+entry.Name()+".yaml", append(fmt.Appendf(nil, header, r.version, entry.Name()), text...)); err != nil {
			return err
		}
	}
	all, err := files(r.source)
	if err != nil {
		return err
	}
	data, err := compressed(all, r.time)
	if err != nil {
		return err
	}
	return r.write("nsinit-manifests.tar.gz", data)
}
