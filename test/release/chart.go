/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/registry"
)

// chart pushes the chart of a release to a registry in this process, pulls it from there as helm pull does, and writes what
// helm template prints to a file.
func chart(release, kubernetes, to string) error {
	server := httptest.NewServer(containerregistry.New(containerregistry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/charts/nsinit"
	var version string
	if err := withLayout(release, chartFile, func(dir string) (err error) {
		version, err = push(dir, repository)
		return err
	}); err != nil {
		return err
	}
	client, err := registry.NewClient(registry.ClientOptPlainHTTP(), registry.ClientOptWriter(io.Discard))
	if err != nil {
		return err
	}
	pulled, err := client.Pull(repository + ":" + version)
	if err != nil {
		return err
	}
	packaged, err := os.ReadFile(filepath.Join(release, "nsinit-"+version+".tgz"))
	if err != nil {
		return err
	}
	if !bytes.Equal(packaged, pulled.Chart.Data) {
		return fmt.Errorf("the chart in the registry is not nsinit-%s.tgz", version)
	}
	text, err := render(packaged, kubernetes)
	if err != nil {
		return err
	}
	fmt.Printf("Helm has pulled and rendered the chart %s %s\n", pulled.Chart.Meta.Name, pulled.Chart.Meta.Version)
	return os.WriteFile(to, []byte(text), 0o644) //nolint:gosec // not secret
}

// push pushes the chart in an OCI layout, and returns its tag.
func push(dir, repository string) (version string, err error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return "", err
	}
	for _, descriptor := range manifest.Manifests {
		if version = descriptor.Annotations["org.opencontainers.image.ref.name"]; version == "" {
			continue // its signature or its provenance
		}
		artifact, err := root.Image(descriptor.Digest)
		if err != nil {
			return "", err
		}
		tag, err := name.NewTag(repository + ":" + version)
		if err != nil {
			return "", err
		}
		return version, remote.Write(tag, artifact)
	}
	return "", errors.New("the layout has no chart")
}

// render returns what helm template prints, for a version of Kubernetes such as v1.37.1.
func render(packaged []byte, kubernetes string) (string, error) {
	loaded, err := loader.LoadArchive(bytes.NewReader(packaged))
	if err != nil {
		return "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	parsed, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return "", err
	}
	capabilities.KubeVersion = *parsed
	values, err := chartutil.ToRenderValues(loaded, nil, chartutil.ReleaseOptions{Name: "nsinit", Namespace: "nsinit-system", IsInstall: true}, capabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(loaded, values)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(file, ".yaml") && strings.TrimSpace(rendered[file]) != "" {
			text.WriteString("---\n" + rendered[file] + "\n")
		}
	}
	return text.String(), nil
}
