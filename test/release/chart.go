/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve pushes the chart of a release to a registry in this process, prints the address of the chart and its tag, and serves it
// until the standard input ends.
func serve(release string) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/charts/nsinit"
	var version string
	if err := withLayout(release, chartFile, func(dir string) (err error) {
		version, err = push(dir, repository)
		return err
	}); err != nil {
		return err
	}
	fmt.Printf("oci://%s %s\n", repository, version)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
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
