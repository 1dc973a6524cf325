/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// readVersions reads the documents of the working tree, and those of each release, the newest one first. It extracts the
// releases into a folder.
func readVersions(ctx context.Context, root, dir string) ([]*site, error) {
	files, err := repositoryFiles(ctx, root)
	if err != nil {
		return nil, err
	}
	current, err := readSite(development, root, files)
	if err != nil {
		return nil, err
	}
	versions := []*site{current}
	tags, err := git(ctx, root, "tag", "--list", "v[0-9]*", "--sort=-version:refname")
	if err != nil {
		return nil, err
	}
	for tag := range strings.FieldsSeq(tags) {
		if strings.Contains(tag, "-") { // a pre-release
			continue
		}
		archive, copied := filepath.Join(dir, tag+".tar"), filepath.Join(dir, tag)
		if _, err := git(ctx, root, "archive", "--output", archive, tag); err != nil {
			return nil, err
		}
		if err := os.Mkdir(copied, 0o755); err != nil {
			return nil, err
		}
		if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", copied).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("tar: %w: %s", err, out)
		}
		names, err := git(ctx, root, "ls-tree", "-r", "-z", "--name-only", tag)
		if err != nil {
			return nil, err
		}
		release, err := readSite(tag, copied, strings.Split(strings.TrimRight(names, "\x00"), "\x00"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tag, err)
		}
		versions = append(versions, release)
	}
	return versions, nil
}

func git(ctx context.Context, root string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root}, arguments...)...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", arguments[0], err)
	}
	return string(out), nil
}

// folder is where the version is in the output.
func (s *site) folder() string {
	if s.Released {
		return s.Version
	}
	return ""
}

// relate gives each page the links to its other versions, or to their start if they have no such page, and the link to edit it.
func relate(versions []*site) {
	for _, s := range versions {
		for file, p := range s.pages {
			if versions[0].pages[file] != nil {
				p.Edit = repository + "/edit/main/" + file
			}
			if len(versions) == 1 {
				continue
			}
			for _, other := range versions {
				url := "index.html"
				if same := other.pages[file]; same != nil {
					url = same.URL
				}
				top := strings.Repeat("../", strings.Count(path.Join("/", s.folder(), p.URL), "/")-1)
				p.Versions = append(p.Versions, neighbour{Title: other.Version, URL: top + path.Join("/", other.folder(), url)[1:]})
			}
		}
	}
}
