/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dop251/goja"
)

// browser returns an interpreter with the script of the search, and the index of a built site.
func browser(t *testing.T, output string) *goja.Runtime {
	t.Helper()
	vm := goja.New()
	vm.SetFieldNameMapper(goja.TagFieldNameMapper("json", true))
	for _, script := range []string{"search.js", "search-index.js"} {
		if _, err := vm.RunScript(script, read(t, output, script)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := vm.RunString(`const prepared = documentation.prepare(searchIndex)`); err != nil {
		t.Fatal(err)
	}
	return vm
}

// found returns the URLs of the sections that a query finds, the best first.
func found(t *testing.T, vm *goja.Runtime, query string) []string {
	t.Helper()
	var urls []string
	if err := vm.Set("query", query); err != nil {
		t.Fatal(err)
	}
	value, err := vm.RunString(`documentation.search(prepared, query, 12).map((found) => found.section.url)`)
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.ExportTo(value, &urls); err != nil {
		t.Fatal(err)
	}
	return urls
}

// TestSearch: the search of the project's own site finds what readers look for, among its first three results.
func TestSearch(t *testing.T) {
	output := filepath.Join(t.TempDir(), "site")
	if err := run(t.Context(), filepath.Join("..", ".."), output); err != nil {
		t.Fatal(err)
	}
	vm := browser(t, output)
	for query, want := range map[string]string{
		"concepts":               "docs/concepts.html",
		"uninstall":              "docs/uninstall.html#uninstall",
		"storage full":           "docs/storage.html#when-the-storage-is-full",
		"served initializers":    "docs/concepts.html#served-initializers",
		"failurePolicy":          "docs/skip-initializer.html#give-an-initializer-a-deadline",
		"NsinitNoLeader":         "docs/alerts.html#when-an-alert-fires",
		"turn too long":          "docs/troubleshoot.html#when-a-turn-or-a-cleanup-takes-too-long",
		"freeze":                 "docs/freeze.html#freeze-a-namespace",
		"freez":                  "docs/freeze.html#freeze-a-namespace",
		"uninstal nsinit":        "docs/uninstall.html#uninstall",
		"strict-name-reuse":      "docs/harden.html#strict-name-reuse",
		"exemtp namespaces":      "docs/exempt.html",
		"required objects":       "docs/required-objects.html",
		"metrics":                "docs/metrics.html",
		"development control":    "hack/dev/index.html",
		"report a vulnerability": "SECURITY.html",
		"vulnerabilities":        "docs/security-tests.html#known-vulnerabilities-in-kubernetes-and-similar-projects",
	} {
		urls := found(t, vm, query)
		if !strings.Contains(strings.Join(urls[:min(3, len(urls))], " ")+" ", want+" ") {
			t.Errorf("%q finds %q, want %s", query, urls, want)
		}
	}
	for _, query := range []string{"", " . ", "xyzzyplugh"} {
		if urls := found(t, vm, query); len(urls) > 0 {
			t.Errorf("%q finds %q", query, urls)
		}
	}
}

// TestExcerpt: an excerpt shows the first match, marked, and no markup or pattern of the query is interpreted.
func TestExcerpt(t *testing.T) {
	vm := goja.New()
	if _, err := vm.RunScript("search.js", read(t, "static", "search.js")); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ call, want string }{
		"marked":    {`documentation.excerpt("The gate opens", "gat", 100)`, `The |gat|e opens`},
		"cut":       {`documentation.excerpt("one two three four five six seven eight nine", "seven", 12)`, `… |seven| eight …`},
		"nothing":   {`documentation.excerpt("one two", "zero", 100)`, `one two`},
		"no words":  {`documentation.excerpt("one two", "(", 100)`, `one two`},
		"a pattern": {`documentation.excerpt("nsinit.dev and nsinitxdev", "nsinit.dev", 100)`, `|nsinit.dev| and nsinitxdev`},
	} {
		value, err := vm.RunString(test.call + `.join("|")`)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := value.String(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
