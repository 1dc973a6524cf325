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
	"os"
	"os/exec"
	"path/filepath"
)

// Overlay applies a bug to copies of the files that it changes, in a directory, and returns a file
// for the flag -overlay of the go command. The source in root stays as it is.
func (b Bug) Overlay(ctx context.Context, root, dir string) (string, error) {
	patch, err := b.Patch()
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
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
		return "", fmt.Errorf("the patch of %s does not apply, make it again: %w", b.Name, err)
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

// Build compiles the packages that a bug changes.
func (b Bug) Build(ctx context.Context, root, overlay string) error {
	patch, err := b.Patch()
	if err != nil {
		return err
	}
	args := []string{"build", "-overlay", overlay}
	for _, file := range Files(patch) {
		if filepath.Ext(file) == ".go" {
			args = append(args, "./"+filepath.Dir(file))
		}
	}
	if len(args) == 3 {
		return nil // it changes manifests
	}
	output, err := goCommand(ctx, root, args...)
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
