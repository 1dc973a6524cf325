/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package seeded

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBugsApply: each bug still applies to the source and compiles, and what must find it exists.
func TestBugsApply(t *testing.T) {
	var known []string
	for _, bug := range Bugs() {
		known = append(known, bug.Name+".patch")
		t.Run(bug.Name, func(t *testing.T) {
			overlay, err := bug.Overlay(t.Context(), root(t), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := bug.Build(t.Context(), root(t), overlay); err != nil {
				t.Fatalf("it does not compile: %v", err)
			}
			if !slices.ContainsFunc(check.Checkers(), func(c check.Checker) bool { return c.Name == bug.Check }) {
				t.Errorf("there is no check %q", bug.Check)
			}
			if bug.Fault != "" && !slices.ContainsFunc(fault.All(), func(f fault.Fault) bool { return regexp.MustCompile(bug.Fault).MatchString(f.Name) }) {
				t.Errorf("there is no fault %q", bug.Fault)
			}
			if bug.Test != "" && !hasTest(t, bug) {
				t.Errorf("there is no test %s in %s", bug.Test, bug.Package)
			}
		})
	}
	entries, err := os.ReadDir("patches")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(known, entry.Name()) {
			t.Errorf("%s is no bug in the table", entry.Name())
		}
	}
}

func hasTest(t *testing.T, bug Bug) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), bug.Package, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), "\nfunc "+strings.Trim(bug.Test, "^$")+"(")
	})
}
