/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
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
		`artifacthub.io/prerelease: "false"`, fmt.Sprintf(`artifacthub.io/prerelease: "%v"`, strings.Contains(version, "-")),
		"\nannotations:\n", "\nannotations:\n  artifacthub.io/images: |\n    - name: nsinit\n      image: "+r.repository+"@"+image.String()+"\n      platforms: ["+strings.Join(r.platforms, ", ")+"]\n"); err != nil {
		return err
	}
	all, err := files(dir)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].name = "nsinit/" + all[i].name
	}
	content, err := compressed(all, r.time)
	if err != nil {
		return err
	}
	if err := r.write("nsinit-"+version+".tgz", content); err != nil {
		return err
	}
	artifact, err := r.chartArtifact(filepath.Join(dir, "Chart.yaml"), content)
	if err != nil {
		return err
	}
	return r.layout("nsinit-chart.tar", func(to layout.Path) error {
		if err := to.AppendImage(artifact, layout.WithAnnotations(map[string]string{kind: kindImage, refName: version})); err != nil {
			return err
		}
		return r.attest(to, artifact, r.chartRepository())
	})
}

// chartArtifact returns the chart as Helm pushes it.
func (r *release) chartArtifact(metadata string, content []byte) (v1.Image, error) {
	text, err := os.ReadFile(metadata)
	if err != nil {
		return nil, err
	}
	artifact := &chartArtifact{content: static.NewLayer(content, chartContent)}
	if artifact.config, err = yaml.YAMLToJSON(text); err != nil {
		return nil, err
	}
	config, err := descriptor(static.NewLayer(artifact.config, chartConfig))
	if err != nil {
		return nil, err
	}
	layer, err := descriptor(artifact.content)
	if err != nil {
		return nil, err
	}
	annotations := r.labels()
	annotations["org.opencontainers.image.version"] = strings.TrimPrefix(r.version, "v") // its tag
	artifact.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{layer}, Annotations: annotations,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact)
}

func descriptor(layer v1.Layer) (v1.Descriptor, error) {
	found, err := partial.Descriptor(layer)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return *found, nil
}

// chartArtifact is a chart in a registry: its configuration is the metadata of the chart, and its layer is the chart.
type chartArtifact struct {
	content          v1.Layer
	config, manifest []byte
}

var _ partial.CompressedImageCore = (*chartArtifact)(nil)

// MediaType implements partial.CompressedImageCore.
func (c *chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (c *chartArtifact) RawConfigFile() ([]byte, error) { return c.config, nil }

// RawManifest implements partial.CompressedImageCore.
func (c *chartArtifact) RawManifest() ([]byte, error) { return c.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (c *chartArtifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if own, err := c.content.Digest(); err != nil || own != digest {
		return nil, fmt.Errorf("the chart has no layer %s: %w", digest, err)
	}
	return c.content, nil
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
