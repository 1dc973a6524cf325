/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and the group of the programs, as in the Dockerfile and the manifests.
const user = "65532:65532"

// labels are the annotations of the image that OCI defines. The configuration of each platform has them as labels, too.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "nsinit",
		"org.opencontainers.image.description":   "Keeps new namespaces closed until they are populated, and deleted ones until every participant has cleaned up",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.vendor":        "The nsinit Authors",
		"org.opencontainers.image.url":           home,
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.documentation": home + "/blob/" + r.version + "/docs/README.md",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.commit,
		"org.opencontainers.image.created":       r.time.Format("2006-01-02T15:04:05Z"),
	}
}

// platforms returns those of the image, such as linux/amd64.
func (r *release) platforms() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(r.built)), func(platform string) bool { return !strings.HasPrefix(platform, "linux/") })
}

// image returns the image of each platform.
func (r *release) image() (v1.ImageIndex, error) {
	if len(r.platforms()) == 0 {
		return nil, errors.New("the image needs the programs for a platform linux/*: add one to --platforms")
	}
	certificates, err := r.certificates()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range r.platforms() {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		layer, err := r.layer(filepath.Join(r.programs, platform.OS+"-"+platform.Architecture, "programs"))
		if err != nil {
			return nil, err
		}
		image, err := r.platform(platform, certificates, layer)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return mutate.Annotations(index, r.labels()).(v1.ImageIndex), nil
}

// platform returns the image of one platform. As in the Dockerfile, the manifests choose the program.
func (r *release) platform(platform *v1.Platform, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var additions []mutate.Addendum
	for _, layer := range layers {
		additions = append(additions, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: home + "/blob/" + r.version + "/hack/release"}})
	}
	image, err := mutate.Append(image, additions...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: r.time}
	config.Config = v1.Config{User: user, WorkingDir: "/", Env: []string{"PATH=/"}, Labels: r.labels()}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// layer returns a layer with the content of a folder.
func (r *release) layer(dir string) (v1.Layer, error) {
	data, err := r.archive(dir)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, tarball.WithMediaType(types.OCILayer))
}

// certificates returns a layer with the certificates of public authorities.
func (r *release) certificates() (v1.Layer, error) {
	root, err := os.MkdirTemp("", "certificates")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	dir := filepath.Join(root, "etc", "ssl", "certs")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "ca-certificates.crt"), publicAuthorities(), 0o600)); err != nil {
		return nil, err
	}
	return r.layer(root)
}

// publicAuthorities returns the certificates of the public certificate authorities that Mozilla trusts for servers. Those that
// it trusts only for some names or until some date are left out, because PEM cannot express that.
func publicAuthorities() []byte {
	var buffer bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&buffer, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer accepts everything
		}
	}
	return buffer.Bytes()
}

// kind is the annotation by which cosign finds the parts of a layout: cosign load and cosign verify --local-image.
const (
	kind          = "kind"
	kindIndex     = "dev.cosignproject.cosign/imageIndex"
	kindImage     = "dev.cosignproject.cosign/image"
	kindSignature = "dev.cosignproject.cosign/sigs"
	kindStatement = "dev.cosignproject.cosign/atts"
	refName       = "org.opencontainers.image.ref.name"
	// imageName is the annotation by which containerd names the image of a layout that it imports, as on the nodes of kind.
	imageName = "io.containerd.image.name"
)

// imageLayout writes the image, its signature and its provenance as the archive of an OCI layout.
func (r *release) imageLayout(image v1.ImageIndex, digest v1.Hash) error {
	return r.layout(imageFile, func(path layout.Path) error {
		if err := path.AppendIndex(image, layout.WithAnnotations(map[string]string{kind: kindIndex, refName: r.version, imageName: r.repository + "@" + digest.String()})); err != nil {
			return err
		}
		return r.attest(path, digest, r.repository)
	})
}

// layout writes an OCI layout as an archive.
func (r *release) layout(name string, fill func(layout.Path) error) error {
	dir, err := os.MkdirTemp("", "layout")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := fill(path); err != nil {
		return err
	}
	data, err := r.archive(dir)
	if err != nil {
		return err
	}
	return r.write(name, data)
}
