/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package docs checks the documents.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root, module = "..", "github.com/nsinit/nsinit/"

// rowOf returns the row of a package in the figure of the layers, the first one at the top.
func rowOf(rows map[string]int, dir string) int {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if row, found := rows[dir]; found {
			return row
		}
	}
	return -1
}

// TestArchitecture: architecture.md names each package, and a package imports packages of the same row and of those below.
func TestArchitecture(t *testing.T) {
	data, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```text\n")
	figure, _, _ := strings.Cut(rest, "```")
	rows, row := map[string]int{}, 0
	for line := range strings.Lines(figure) {
		folders := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			row, folders = row+1, folders[1:]
		}
		for _, folder := range folders {
			rows[folder] = row
		}
	}
	imports := 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "_output" || entry.Name() == "testdata" || entry.Name() == "test" || entry.Name() == "docs"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if isTest := strings.HasSuffix(dir, "testserver") || strings.HasSuffix(dir, "conformance"); !isTest && !strings.HasPrefix(dir, "pkg/generated") && !strings.Contains(string(data), "`"+dir+"`") {
			t.Errorf("architecture.md does not name %s", dir)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, one := range file.Imports {
			imported, _ := strconv.Unquote(one.Path.Value)
			imported, own := strings.CutPrefix(imported, module)
			if !own || strings.Contains(dir+imported, "testserver") {
				continue
			}
			imports++
			if from, to := rowOf(rows, dir), rowOf(rows, imported); from < 0 || to < from {
				t.Errorf("%s, in row %d of architecture.md, imports %s of row %d", dir, from, imported, to)
			}
		}
		return nil
	})
	if err != nil || imports < 100 {
		t.Errorf("%d imports, %v", imports, err)
	}
}
