/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// release is what is released, and how.
type release struct {
	// version is such as v0.1.0, and commit the one from which the programs were built at the time of the commit.
	version, commit string
	time            time.Time
	// snapshot is set if the programs contain changes that are in no commit.
	snapshot bool
	// built are the platforms of all programs, such as windows/amd64.
	built []string
	// repository is the name of the image without its tag.
	repository string
	// programs has a folder PLATFORM/programs for each platform of the image, such as linux-amd64/programs.
	programs string
	// source has the files of nsinit-manifests.tar.gz.
	source string
	// output has the archives, and gets the rest.
	output string
	// key signs. It is nil for a release without signatures.
	key *key
}

const (
	home      = "https://github.com/nsinit/nsinit"
	downloads = home + "/releases/download" // the folder of each version is in it
	imageFile = "nsinit-image.tar"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot make the release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	image, err := r.image()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		make func(v1.Hash) error
	}{
		{"manifests", r.manifests}, {"chart", r.chart}, {"krew manifest", r.krew},
	} {
		if err := step.make(digest); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if err := r.imageLayout(image, digest); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.provenance(); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := r.checksums(); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	fmt.Printf("image: %s:%s@%s\n", r.repository, r.version, digest)
	return nil
}

// parse reads the flags and the key.
func parse(args []string) (*release, error) {
	r := &release{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "The version, such as v0.1.0.")
	flags.StringVar(&r.commit, "commit", "", "The commit.")
	epoch := flags.Int64("epoch", 0, "The time of the commit, in seconds since 1970.")
	flags.BoolVar(&r.snapshot, "snapshot", false, "The source has changes that are in no commit.")
	built := flags.String("platforms", "", "The platforms of the programs, separated by spaces, such as linux/amd64.")
	flags.StringVar(&r.repository, "repository", "ghcr.io/nsinit/nsinit", "The name of the image, without a tag.")
	flags.StringVar(&r.programs, "programs", "", "The folder with PLATFORM/programs.")
	flags.StringVar(&r.source, "source", "", "The folder with the files of nsinit-manifests.tar.gz.")
	flags.StringVar(&r.output, "output", "", "The folder of the release.")
	unsigned := flags.Bool("unsigned", false, "Sign nothing.")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	r.built = strings.Fields(*built)
	if !strings.HasPrefix(r.version, "v") || r.commit == "" || *epoch == 0 || len(r.built) == 0 || r.programs == "" || r.source == "" || r.output == "" {
		return nil, errors.New("give --version, --commit, --epoch, --platforms, --programs, --source and --output")
	}
	r.time = time.Unix(*epoch, 0).UTC()
	if *unsigned {
		fmt.Println("UNSIGNED: there is no proof of the origin of this release")
		return r, nil
	}
	var err error
	r.key, err = loadKey()
	return r, err
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.output, name), data, 0o644) //nolint:gosec // not secret
}
