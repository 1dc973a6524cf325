/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
)

// TestSourceOf: what is tested is the source of the programs, not that of the campaign.
func TestSourceOf(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{"abc1234-dirty\n": "abc1234-dirty", "": "unknown"} {
		if err := os.WriteFile(filepath.Join(dir, controlplane.SourceFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := sourceOf(dir); got != want {
			t.Errorf("%q: %s", content, got)
		}
	}
	if got := sourceOf(t.TempDir()); got != "unknown" {
		t.Errorf("without the file: %s", got)
	}
}

// TestReliability: docs/reliability.md shows the stored results.
func TestReliability(t *testing.T) {
	generated := filepath.Join(t.TempDir(), "reliability.md")
	if err := runReport([]string{"--dir", "results", "--output", generated}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(generated) //nolint:gosec // just written
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join("..", "..", "docs", "reliability.md")); err != nil || string(got) != string(want) {
		t.Errorf("docs/reliability.md is not what make faults writes: %v", err)
	}
}
