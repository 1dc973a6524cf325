/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLength: the README can be read in minutes, and each page in a quarter of an hour.
func TestLength(t *testing.T) {
	const introduction, page = 450, 2500
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, name := range append(pages, filepath.Join("..", "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		most, read := page, string(text)
		if filepath.Base(name) == "README.md" {
			most = introduction
			read, _, _ = strings.Cut(read, "\n## Documentation\n")
		}
		if words := len(strings.Fields(read)); words > most {
			t.Errorf("%s has %d words, at most %d are read: split or shorten it", name, words, most)
		}
	}
}
