/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command release verifies and unpacks a release as its users do, with the code of sigstore. It needs no network.
//
//	release key FOLDER
//	release verify RELEASE PUBLIC-KEY
//	release load PLATFORM FOLDER ARCHIVE
//	release serve RELEASE
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "key":
		return generateKey(args[1])
	case len(args) == 3 && args[0] == "verify":
		return verify(args[1], args[2])
	case len(args) == 4 && args[0] == "load":
		return load(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// withLayout unpacks the archive of an OCI layout of a release while it is used.
func withLayout(release, name string, use func(dir string) error) error {
	dir, err := os.MkdirTemp("", "layout")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive, err := os.Open(filepath.Join(release, name))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	if err := extract(archive, dir); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return use(dir)
}

// extract writes the files of a tar archive into a folder.
func extract(archive io.Reader, dir string) error {
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("%s is not in the archive's own folder", header.Name)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		file := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // not secret
			return err
		}
		out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, header.FileInfo().Mode())
		if err != nil {
			return err
		}
		_, err = io.Copy(out, reader) //nolint:gosec // a release, not an upload
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}

// load writes the files of the image in an archive for a platform into a folder, and prints the name by which containerd imports it.
func load(platform, to, archive string) error {
	return withLayout(filepath.Dir(archive), filepath.Base(archive), func(dir string) error {
		root, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			return err
		}
		manifest, err := root.IndexManifest()
		if err != nil {
			return err
		}
		for _, descriptor := range manifest.Manifests {
			if !descriptor.MediaType.IsIndex() {
				continue
			}
			index, err := root.ImageIndex(descriptor.Digest)
			if err != nil {
				return err
			}
			fmt.Println(descriptor.Annotations["io.containerd.image.name"])
			return unpackPlatform(index, platform, to)
		}
		return errors.New("the layout has no image index")
	})
}

func unpackPlatform(index v1.ImageIndex, platform, to string) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		if platforms = append(platforms, descriptor.Platform.String()); descriptor.Platform.String() != platform {
			continue
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		return extract(mutate.Extract(image), to)
	}
	return fmt.Errorf("the image is for %s, not for %s", strings.Join(platforms, ", "), platform)
}
