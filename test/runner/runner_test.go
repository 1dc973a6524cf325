/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// source is the file x_test.go of the package pkg/x.
const source = `package x
	t.Logf("logged")
	t.Errorf("an error")
	framework.Eventually(t, "a helper", nil)
`

func TestCause(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "pkg", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "pkg", "x", "x_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var many, manyWant []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("    x_test.go:3: %d", i))
		manyWant = append(manyWant, fmt.Sprintf("x_test.go:3: %d", i))
	}
	for name, test := range map[string]struct{ printed, want []string }{
		"an error, not what is logged": {
			[]string{"=== RUN   TestX", "    x_test.go:2: logged", "        more", "    x_test.go:3: an error", "        more", "    x_test.go:2: logged", "--- FAIL: TestX (0.00s)"},
			[]string{"x_test.go:3: an error", "    more"},
		},
		"a helper": {[]string{"    x_test.go:4: a helper: not found"}, []string{"x_test.go:4: a helper: not found"}},
		"a panic": {
			[]string{"    x_test.go:2: logged", "panic: no map", "", "goroutine 1 [running]:"},
			[]string{"panic: no map", "goroutine 1 [running]:"},
		},
		"a compiler": {[]string{"# pkg/x", "x.go:7:2: undefined: y", "FAIL"}, []string{"# pkg/x", "x.go:7:2: undefined: y"}},
		"many lines": {append([]string{"    x_test.go:3: a diff"}, slices.Repeat([]string{"        line"}, 20)...), append([]string{"x_test.go:3: a diff"}, slices.Repeat([]string{"    line"}, 9)...)},
		"many messages, of which the last ends the test": {many, manyWant[2:]},
		"a long line": {[]string{"    x_test.go:3: " + strings.Repeat("x", 1000)}, []string{"x_test.go:3: " + strings.Repeat("x", maxWidth-13) + "..."}},
	} {
		var lines []line
		for _, text := range test.printed {
			lines = append(lines, line{"TestX", text})
		}
		if diff := cmp.Diff(test.want, cause(root, "pkg/x", lines)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := cause(root, "pkg/x", []line{{"TestX/a/b", "    x_test.go:3: an error"}}); got[0] != "a/b: x_test.go:3: an error" {
		t.Errorf("of a subtest: %q", got)
	}
}

// play handles events, and returns what is printed without times.
func play(t *testing.T, packages bool, total int, events ...string) (printed string, r *report) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(t.TempDir(), "_output", "tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r = newReport(t.Context(), &out, t.TempDir(), 7)
	out.Reset()
	p := r.part("part", packages)
	p.total = total
	for _, event := range events {
		p.event(strings.NewReplacer("PKG", project+"pkg/x").Replace(event) + "\n")
	}
	return regexp.MustCompile(`\[ +\d+m\d\ds\] `).ReplaceAllString(out.String(), ""), r
}

func TestProgress(t *testing.T) {
	for name, test := range map[string]struct {
		packages bool
		events   []string
		want     string
		failures []string
	}{
		"tests": {false, []string{
			`{"Action":"attr","Package":"PKG","Test":"TestA","Key":"waited","Value":"2.5"}`,
			`{"Action":"attr","Package":"PKG","Test":"TestB/sub","Key":"waited","Value":"3.5"}`,
			`{"Action":"pass","Package":"PKG","Test":"TestB/sub","Elapsed":5}`,
			`{"Action":"output","Package":"PKG","Test":"TestA/sub","Output":"    x_test.go:1: no\n"}`,
			`{"Action":"fail","Package":"PKG","Test":"TestA/sub","Elapsed":1}`,
			`{"Action":"pass","Package":"PKG","Test":"TestB","Elapsed":1}`,
			`{"Action":"fail","Package":"PKG","Test":"TestA","Elapsed":4}`,
			`{"Action":"output","Package":"PKG","Output":"FAIL\n"}`,
			`{"Action":"fail","Package":"PKG","Elapsed":5}`,
			`no event`,
		}, `part 1/3 ok TestB (2.5s); failed 0
part 2/3 FAILED TestA (1.5s); failed 1
    sub: x_test.go:1: no
part: the output of TestA:
    x_test.go:1: no
part: the end of the output of TestA
part: no event
`, []string{"TestA"}},
		"packages": {true, []string{
			`{"Action":"pass","Package":"PKG","Test":"TestA","Elapsed":1}`,
			`{"Action":"pass","Package":"PKG","Elapsed":1}`,
			`{"Action":"output","Package":"PKG/y","Test":"TestA","Output":"    x_test.go:1: no\n"}`,
			`{"Action":"fail","Package":"PKG/y","Test":"TestA","Elapsed":1}`,
			`{"Action":"fail","Package":"PKG/y","Elapsed":1}`,
		}, `part 1/3 ok pkg/x (1.0s); failed 0
part 1/3 FAILED pkg/x/y TestA (1.0s); failed 1
    x_test.go:1: no
part: the output of pkg/x/y TestA:
    x_test.go:1: no
part: the end of the output of pkg/x/y TestA
part 2/3 fail pkg/x/y (1.0s); failed 1
`, []string{"pkg/x/y TestA"}},
		"a package that does not compile": {true, []string{
			`{"ImportPath":"PKG [PKG.test]","Action":"build-output","Output":"x.go:1: undefined: y\n"}`,
			`{"ImportPath":"PKG [PKG.test]","Action":"build-fail"}`,
			`{"Action":"fail","Package":"PKG","Elapsed":0,"FailedBuild":"PKG [PKG.test]"}`,
		}, `part 1/3 FAILED pkg/x (0.0s); failed 1
    x.go:1: undefined: y
part: the output of pkg/x:
x.go:1: undefined: y
part: the end of the output of pkg/x
`, []string{"pkg/x"}},
		"tests that do not end": {false, []string{
			`{"Action":"output","Package":"PKG","Test":"TestA","Output":"panic: timed out\n"}`,
			`{"Action":"fail","Package":"PKG","Elapsed":5}`,
		}, `part 0/3 FAILED pkg/x (5.0s); failed 1
    panic: timed out
    panic: 1 tests did not end: TestA
part: the output of pkg/x:
panic: timed out
panic: 1 tests did not end: TestA
part: the end of the output of pkg/x
`, []string{"pkg/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			printed, r := play(t, test.packages, 3, test.events...)
			if diff := cmp.Diff(test.want, printed); diff != "" {
				t.Error(diff)
			}
			var failures []string
			for _, f := range r.failures {
				failures = append(failures, f.name)
			}
			if !slices.Equal(failures, test.failures) {
				t.Errorf("failed are %q, want %q", failures, test.failures)
			}
		})
	}
}

// TestSummary: the summary names the command that repeats a failed test.
func TestSummary(t *testing.T) {
	var out bytes.Buffer
	r := newReport(t.Context(), &out, t.TempDir(), 7)
	r.part("e2e", false).total = 3
	r.failures = []result{{"e2e", "TestA", 1, []string{"one", "two"}}, {"v1.35", "TestB", 1, nil}, {"tools", "hack/x TestC", 1, nil}, {"unit", "pkg/x", 1, nil}}
	if !r.summary() {
		t.Error("no failure is reported")
	}
	for _, want := range []string{
		"e2e TestA (1.0s); repeat it with: make e2e RUN='^TestA$' SEED=7\n    one\n    two\n",
		"make test-versions VERSIONS=v1.35 RUN='^TestB$' SEED=7\n", "make packaging RUN='^TestC$' SEED=7\n", "make unit SEED=7\n", "==> 4 failed; e2e 0/3; took ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	table(&out, []*report{{seed: 7, loadAfter: "8.20"}, {seed: 8, took: 75 * time.Second, loadAfter: "9.10", failures: []result{
		{"e2e", "TestA", 1, []string{"x_test.go:1: no", "more"}}, {"unit", "pkg/x TestB", 1, nil},
	}}})
	if diff := cmp.Diff(`RUN  SEED  SECONDS  LOAD  TEST              CAUSE
1    7     0        8.20  all passed        
2    8     75       9.10  e2e TestA         x_test.go:1: no
2    8     75       9.10  unit pkg/x TestB  
==> 1 of 2 runs failed
`, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestEveryModule: each module with tests belongs to a part of make test-all.
func TestEveryModule(t *testing.T) {
	var listed []string
	for _, part := range partsOf("test-all") {
		listed = append(listed, modulesOf(part)...)
	}
	root := filepath.Join("..", "..")
	module := root
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				module = path
			}
			if entry.Name() == "_output" {
				return filepath.SkipDir
			}
		}
		if strings.HasPrefix(path, module+"/") && module != root && strings.HasSuffix(path, "_test.go") {
			if name, _ := filepath.Rel(root, module); !slices.Contains(listed, name) {
				t.Errorf("%s is in no part: add %s to modulesOf", path, name)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestMarked: the tests that depend on Kubernetes are some of the end-to-end tests. A test with another build tag is none. Each test runs
// once in make test-all.
func TestMarked(t *testing.T) {
	every, e2e := regexp.MustCompile(""), filepath.Join("..", "e2e")
	usual, special := testsIn("e2e", e2e, every), testsIn("packaging", e2e, every)
	if both := slices.Sorted(slices.Values(slices.Concat(usual, special))); len(special) == 0 || !slices.Equal(both, slices.Sorted(slices.Values(testsIn("", e2e, every)))) {
		t.Errorf("make test runs %q, and make packaging %q", usual, special)
	}
	for _, dir := range suitesOf("test-versions") {
		all, marked := testsIn("", filepath.Join("..", "..", dir), every), testsIn("test-versions", filepath.Join("..", "..", dir), every)
		if len(marked) == 0 || len(marked) >= len(all) || slices.Contains(all, "TestDashboards") || slices.Contains(all, "TestMain") {
			t.Errorf("%s: %d of %d tests depend on Kubernetes: %q", dir, len(marked), len(all), all)
		}
	}
}
