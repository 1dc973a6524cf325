/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package docs checks the documents.
package docs

import (
	"errors"
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
	imports, importsOf := 0, map[string][]string{}
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
		if isTest := strings.HasSuffix(dir, "testserver") || strings.HasSuffix(dir, "conformance"); !isTest && !strings.HasPrefix(dir, "sdk/generated") && !strings.Contains(string(data), "`"+dir+"`") {
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
			importsOf[dir] = append(importsOf[dir], imported)
			if from, to := rowOf(rows, dir), rowOf(rows, imported); from < 0 || to < from {
				t.Errorf("%s, in row %d of architecture.md, imports %s of row %d", dir, from, imported, to)
			}
		}
		return nil
	})
	if err != nil || imports < 100 {
		t.Errorf("%d imports, %v", imports, err)
	}
	checkImage(t, importsOf)
}

// checkImage checks that the Dockerfile copies the folders of all packages that the programs of the image import.
func checkImage(t *testing.T, importsOf map[string][]string) {
	t.Helper()
	dockerfile, dockerfileErr := os.ReadFile(root + "/Dockerfile")
	ignored, ignoredErr := os.ReadFile(root + "/.dockerignore")
	if err := errors.Join(dockerfileErr, ignoredErr); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for todo := []string{"cmd/nsinit-apiserver", "cmd/nsinit-controller-manager", "cmd/policy-population", "vendor-hooks/http-provisioner"}; len(todo) > 0; {
		dir := todo[0]
		if todo = todo[1:]; seen[dir] {
			continue
		}
		seen[dir], todo = true, append(todo, importsOf[dir]...)
		folder, _, _ := strings.Cut(dir, "/")
		if !strings.Contains(string(dockerfile), "\nCOPY "+folder+" "+folder+"\n") || !strings.Contains(string(ignored), "\n!"+folder+"\n") {
			t.Errorf("the image is built without %s", dir)
		}
	}
	if len(seen) < 30 {
		t.Errorf("the programs import %d packages", len(seen))
	}
}
