/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command site builds the documentation site from the Markdown files of the repository with Hugo.
//
//	site --root DIRECTORY --output DIRECTORY
//
// The start of the site is the version in the working tree. Each release, which is a tag such as v0.1.0, has a folder, and each page
// has a menu of versions.
//
// The documents have no front matter, and their links are those of a Git host. The command gives Hugo their titles, their order
// (that of docs/README.md), and what their links lead to. The theme is this folder: it checks links, anchors, pictures and their
// descriptions, and writes the index of the search.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	output := flag.String("output", "_output/site", "folder for the site, which is replaced")
	flag.Parse()
	if err := run(context.Background(), *root, *output); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, output string) error {
	dir, err := os.MkdirTemp("", "site")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	versions, err := readVersions(ctx, root, dir)
	if err != nil {
		return err
	}
	return build(ctx, filepath.Join(root, "hack", "site"), output, versions...)
}

// repositoryFiles returns the files that Git tracks or would track.
func repositoryFiles(ctx context.Context, root string) ([]string, error) {
	names, err := git(ctx, root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	return slices.DeleteFunc(strings.Split(strings.TrimRight(names, "\x00"), "\x00"), func(file string) bool {
		_, err := os.Stat(filepath.Join(root, file))
		return err != nil
	}), err
}

// build builds the site of the versions with a theme. The first version is that of the working tree.
func build(ctx context.Context, theme, output string, versions ...*site) error {
	theme, err := filepath.Abs(theme)
	if err != nil {
		return err
	}
	if output, err = filepath.Abs(output); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	relate(versions)
	for _, s := range versions {
		if err := s.build(ctx, theme, filepath.Join(output, s.folder())); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) build(ctx context.Context, theme, output string) error {
	work, err := os.MkdirTemp("", "site")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := s.write(work); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "hugo", "--source", work, "--config", filepath.Join(theme, "hugo.yaml"),
		"--themesDir", filepath.Dir(theme), "--theme", filepath.Base(theme), "--destination", output, "--cacheDir", filepath.Join(work, "cache"))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("hugo: %w\n%s", err, out)
	}
	return nil
}

func writeJSON(file string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return writeFile(file, data)
}

func writeFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
