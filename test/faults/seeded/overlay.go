/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package seeded

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Overlay applies bugs to copies of the files that they change, in a directory, and returns a file
// for the flag -overlay of the go command. The source in root stays as it is. No two of the bugs
// may change the same file.
func Overlay(ctx context.Context, root, dir string, bugs ...Bug) (string, error) {
	replaced := map[string]string{}
	for _, bug := range bugs {
		patch, err := bug.Patch()
		if err != nil {
			return "", err
		}
		for _, file := range Files(patch) {
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return "", err
			}
			target := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return "", err
			}
			if err := os.WriteFile(target, source, 0o600); err != nil {
				return "", err
			}
			replaced[filepath.Join(root, file)] = target
		}
		if err := apply(ctx, dir, patch); err != nil {
			return "", fmt.Errorf("the patch of %s does not apply, make it again: %w", bug.Name, err)
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}

// apply applies a patch to the files in a directory.
func apply(ctx context.Context, dir string, patch []byte) error {
	command := exec.CommandContext(ctx, "git", "apply", "-")
	command.Dir, command.Stdin = dir, bytes.NewReader(patch)
	// The directory may be below the work tree, to which git would apply the patch.
	command.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// Build compiles the packages that bugs change.
func Build(ctx context.Context, root, overlay string, bugs ...Bug) error {
	packages := map[string]bool{}
	for _, bug := range bugs {
		patch, err := bug.Patch()
		if err != nil {
			return err
		}
		for _, file := range Files(patch) {
			if filepath.Ext(file) == ".go" { // others are manifests
				packages["github.com/nsinit/nsinit/"+filepath.Dir(file)] = true
			}
		}
	}
	if len(packages) == 0 {
		return nil
	}
	output, err := goCommand(ctx, root, append([]string{"build", "-overlay", overlay}, slices.Sorted(maps.Keys(packages))...)...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

func goCommand(ctx context.Context, root string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	return command.CombinedOutput()
}
