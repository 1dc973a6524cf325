/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The format of charts in registries, which Helm defines.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartRepository is the name of the chart in a registry.
func (r *release) chartRepository() string { return path.Dir(r.repository) + "/charts/nsinit" }

// chart writes the chart with this version and the digest of the image: as the file that helm package writes, and as the
// archive of an OCI layout.
func (r *release) chart(image v1.Hash) error {
	version := strings.TrimPrefix(r.version, "v")
	dir := filepath.Join(r.source, "artifacts", "helm", "nsinit")
	if err := replace(filepath.Join(dir, "values.yaml"), "  repository: nsinit\n", "  repository: "+r.repository+"\n", "  digest: \"\"\n", "  digest: "+image.String()+"\n"); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, "Chart.yaml"), "\nversion: 0.1.0\n", "\nversion: "+version+"\n", "\nappVersion: v0.1.0\n", "\nappVersion: "+r.version+"\n",
		`artifacthub.io/prerelease: "true"`, fmt.Sprintf(`artifacthub.io/prerelease: "%v"`, prerelease(version)),
		"\nannotations:\n", "\nannotations:\n  artifacthub.io/images: |\n    - name: nsinit\n      image: "+r.repository+"@"+image.String()+"\n      platforms: ["+strings.Join(r.platforms(), ", ")+"]\n"); err != nil {
		return err
	}
	content, err := r.compressed(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return err
	}
	if err := r.write("nsinit-"+version+".tgz", content); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	metadata, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return r.layout("nsinit-chart.tar", func(to layout.Path) error {
		manifest, err := r.chartManifest(to, metadata, content)
		if err != nil {
			return err
		}
		manifest.Annotations = map[string]string{kind: kindImage, refName: version}
		if err := to.AppendDescriptor(manifest); err != nil {
			return err
		}
		return r.attest(to, manifest.Digest, r.chartRepository())
	})
}

// prerelease reports whether users should expect that a version changes. Before 1.0, the API is alpha or beta.
func prerelease(version string) bool {
	return strings.HasPrefix(version, "0.") || strings.Contains(version, "-")
}

// chartManifest writes the chart into a layout as Helm pushes it: its configuration is the metadata of the chart, and its layer is the
// chart.
func (r *release) chartManifest(to layout.Path, metadata, content []byte) (v1.Descriptor, error) {
	config, err := blob(to, metadata, chartConfig)
	if err != nil {
		return config, err
	}
	layer, err := blob(to, content, chartContent)
	if err != nil {
		return layer, err
	}
	annotations := r.labels()
	annotations["org.opencontainers.image.version"] = strings.TrimPrefix(r.version, "v") // its tag
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{layer}, Annotations: annotations,
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	return blob(to, manifest, types.OCIManifestSchema1)
}

// blob writes a blob into a layout.
func blob(to layout.Path, data []byte, mediaType types.MediaType) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: mediaType, Size: size, Digest: digest}, to.WriteBlob(digest, io.NopCloser(bytes.NewReader(data)))
}

// replace replaces texts in a file, each of which has to be in it once: old, new, old, new...
func replace(file string, texts ...string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(data)
	for i := 0; i < len(texts); i += 2 {
		if count := strings.Count(text, texts[i]); count != 1 {
			return fmt.Errorf("%s contains %q %d times, want once: change hack/release with it", file, texts[i], count)
		}
		text = strings.Replace(text, texts[i], texts[i+1], 1)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // not secret
}
