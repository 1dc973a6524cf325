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
	"github.com/nsinit/nsinit/test/faults/history"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBugsCompile: each bug compiles. Those that change different files are compiled together.
func TestBugsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for many seconds")
	}
	for rest := Bugs(); len(rest) > 0; {
		var batch, later []Bug
		files := map[string]bool{}
		for _, bug := range rest {
			patch, err := bug.Patch()
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(Files(patch), func(file string) bool { return files[file] }) {
				later = append(later, bug)
				continue
			}
			batch = append(batch, bug)
			for _, file := range Files(patch) {
				files[file] = true
			}
		}
		rest = later
		overlay, err := Overlay(t.Context(), root(t), t.TempDir(), batch...)
		if err != nil {
			t.Fatal(err)
		}
		if err := Build(t.Context(), root(t), overlay, batch...); err != nil {
			t.Error(err)
		}
	}
}

// TestBugsApply: each bug still applies to the source, and what must find it exists.
func TestBugsApply(t *testing.T) {
	var known []string
	for _, bug := range Bugs() {
		known = append(known, bug.Name+".patch")
		t.Run(bug.Name, func(t *testing.T) {
			if _, err := Overlay(t.Context(), root(t), t.TempDir(), bug); err != nil {
				t.Fatal(err)
			}
			if bug.Check != "" && !slices.ContainsFunc(check.Checkers(), func(c check.Checker) bool { return c.Name == bug.Check }) {
				t.Errorf("there is no check %q", bug.Check)
			}
			if (bug.Found == "") != (bug.Fix == "") || bug.Fault != "" && bug.Check == "" || bug.Fault == "" && bug.Test == "" {
				t.Errorf("something is missing: %+v", bug)
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

// TestHistories: the checks find each bug in the history that was recorded of it.
func TestHistories(t *testing.T) {
	entries, err := os.ReadDir("histories")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), historySuffix)
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(Bugs(), func(b Bug) bool { return b.Name == name })
			if i < 0 {
				t.Fatal("it is no bug in the table")
			}
			h, err := history.Load(filepath.Join("histories", entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if !Bugs()[i].foundIn(h) {
				t.Errorf("check %s finds nothing", Bugs()[i].Check)
			}
		})
	}
}

// TestTable: the README has the table.
func TestTable(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n"+Table()) {
		t.Errorf("the table in README.md is not this one:\n%s", Table())
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
