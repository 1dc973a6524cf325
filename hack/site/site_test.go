/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repositoryWith returns the root and the files of a repository with a few documents, some of which a test replaces. An
// empty document is deleted.
func repositoryWith(t *testing.T, replaced map[string]string) (root string, files []string) {
	t.Helper()
	documents := map[string]string{
		"README.md":              "# Home\n\nRead [the documents](docs) and [the code](pkg/code), under [a licence](LICENSE).\n",
		"LICENSE":                "free\n",
		"docs/README.md":         "# Documents\n\n## Readers\n\n- [Second](second.md), then [first](first.md#a-heading)\n\n## Others\n\n- [Hook](../hooks/one)\n- [Folder](folder/README.md)\n",
		"docs/folder/README.md":  "# Folder\n\n- [Leaf](leaf.md)\n",
		"docs/folder/leaf.md":    "# Leaf\n\nText.\n",
		"docs/first.md":          "# First\n\n## A heading\n\nSee [the second](second.md#deep) and ![A square](images/square.svg)\n",
		"docs/second.md":         "# Second\n\n### Deep\n\nFlags such as --keep stay. [Up](#deep), [host](https://example.com).\n\n```yaml\na: 1\n```\n",
		"docs/images/square.svg": `<svg xmlns="http://www.w3.org/2000/svg"/>`,
		"hooks/one/README.md":    "# Hook\n\nText.\n",
		"pkg/code/code.go":       "package code\n",
		"pkg/testdata/README.md": "no title\n",
	}
	maps.Copy(documents, replaced)
	root = t.TempDir()
	for file, text := range documents {
		if text == "" {
			continue
		}
		if err := writeFile(filepath.Join(root, file), []byte(text)); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return root, files
}

// built builds a site of one version.
func built(t *testing.T, root, output string, files []string) error {
	t.Helper()
	s, err := readSite(development, root, files)
	if err != nil {
		return err
	}
	return build(t.Context(), ".", output, s)
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// defect is a line in which Hugo reports a defect.
var defect = regexp.MustCompile(`(?m)^ERROR (?:[0-9/]+ [0-9:]+ )?(.*)$`)

// TestDefects: a defect of a document fails the build with the document, the line and the link.
func TestDefects(t *testing.T) {
	for name, test := range map[string]struct {
		replaced map[string]string
		want     string
	}{
		"nothing":             {},
		"broken link":         {map[string]string{"docs/second.md": "# Second\n\n### Deep\n\nSee [it](gone.md).\n"}, `docs/second.md:5: link "gone.md": the repository has no such file`},
		"broken folder":       {map[string]string{"README.md": "# Home\n\n[code](pkg/gone)\n"}, `README.md:3: link "pkg/gone": the repository has no such file`},
		"broken anchor":       {map[string]string{"docs/first.md": "# First\n\n## A heading\n\n[second](second.md#shallow)\n"}, `docs/first.md:5: link "second.md#shallow": the document has no heading with this anchor`},
		"broken own anchor":   {map[string]string{"docs/first.md": "# First\n\n## A heading\n\n[here](#nowhere)\n"}, `docs/first.md:5: link "#nowhere": the document has no heading with this anchor`},
		"missing picture":     {map[string]string{"docs/images/square.svg": ""}, `docs/first.md:5: picture "images/square.svg": the repository has no such file`},
		"without description": {map[string]string{"docs/first.md": "# First\n\n## A heading\n\n![](images/square.svg)\n"}, `docs/first.md:5: picture "images/square.svg" has no description: write ![what it shows](...)`},
		"diagram":             {map[string]string{"docs/second.md": "# Second\n\n### Deep\n\n```mermaid\nflowchart LR\n```\n"}, `docs/second.md:5: the site has no renderer for mermaid: draw an SVG picture in docs/images`},
		"unlisted document":   {map[string]string{"docs/third.md": "# Third\n"}, `docs/third.md: docs/README.md does not list it: add a link under the heading of its readers`},
		"unlisted in folder":  {map[string]string{"docs/folder/README.md": "# Folder\n\nText.\n"}, `docs/folder/leaf.md: docs/README.md does not list it: add a link under the heading of its readers`},
		"untitled document":   {map[string]string{"docs/first.md": "Text.\n"}, `docs/first.md: no title: begin it with a line such as "# Concepts"`},
		"no list":             {map[string]string{"docs/README.md": ""}, `docs/README.md is missing: it lists the documents, and so the navigation`},
	} {
		t.Run(name, func(t *testing.T) {
			root, files := repositoryWith(t, test.replaced)
			var found string
			if err := built(t, root, filepath.Join(t.TempDir(), "site"), files); err != nil {
				found = err.Error()
			}
			if defects := defect.FindAllStringSubmatch(found, -1); len(defects) == 1 {
				found = defects[0][1]
			}
			if found != test.want {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// TestPages: the pages have the order of docs/README.md, and their links lead to pages, pictures or the Git host.
func TestPages(t *testing.T) {
	root, files := repositoryWith(t, nil)
	output := filepath.Join(t.TempDir(), "site")
	if err := built(t, root, output, files); err != nil {
		t.Fatal(err)
	}
	for file, wanted := range map[string][]string{
		"index.html": {
			`href="./docs/index.html"`, `href="https://github.com/nsinit/nsinit/tree/main/pkg/code"`, `href="https://github.com/nsinit/nsinit/blob/main/LICENSE"`,
			`<title>nsinit: `, `<p class="where">development version</p>`, `href="https://github.com/nsinit/nsinit/edit/main/README.md"`,
		},
		"docs/first.html": {
			`href="../docs/second.html#deep"`, `src="../docs/images/square.svg" alt="A square"`, `<title>First · nsinit</title>`,
			`<h2 id="a-heading">`, `<a rel="prev" href="../docs/second.html">`, `<a rel="next" href="../hooks/one/index.html">`,
			`<a href="../docs/first.html" aria-current="page">First</a>`,
		},
		"docs/folder/leaf.html": {`<p class="where">Others · development version</p>`, `<a href="../../docs/folder/index.html" aria-current="true">Folder</a>`, `<a rel="prev" href="../../docs/folder/index.html">`},
		"docs/second.html":      {`Flags such as --keep stay.`, `href="#deep"`, `<span class="nt">a</span>`},
	} {
		text := read(t, output, file)
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not contain %s:\n%s", file, want, text)
			}
		}
	}
	navigation := read(t, output, "index.html")
	if second, first, hook := strings.Index(navigation, ">Second<"), strings.Index(navigation, ">First<"), strings.Index(navigation, ">Hook<"); second < 0 || second > first || first > hook {
		t.Errorf("the navigation has Second, First and Hook at %d, %d and %d", second, first, hook)
	}
	if _, err := os.Stat(filepath.Join(output, "pkg", "testdata")); err == nil {
		t.Error("the site has a page for test data")
	}
}

// TestVersions: each release has a folder, and each page a menu of the versions. A defect of a release is no error.
func TestVersions(t *testing.T) {
	root, files := repositoryWith(t, map[string]string{"hooks/one/README.md": "", "docs/README.md": "# Documents\n\n## All\n\n[a](first.md) [b](second.md) [c](folder/README.md)\n"})
	current, err := readSite(development, root, files)
	if err != nil {
		t.Fatal(err)
	}
	root, files = repositoryWith(t, map[string]string{"docs/first.md": "# First\n\n[gone](gone.md)\n"})
	release, err := readSite("v0.1.0", root, files)
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "site")
	if err := build(t.Context(), ".", output, current, release); err != nil {
		t.Fatal(err)
	}
	for file, wanted := range map[string][]string{
		"docs/first.html":             {`<a href="../docs/first.html" aria-current="true">development</a>`, `<a href="../v0.1.0/docs/first.html">v0.1.0</a>`},
		"v0.1.0/docs/first.html":      {`<a href="../../docs/first.html">development</a>`, `<a href="../../v0.1.0/docs/first.html" aria-current="true">v0.1.0</a>`, `· v0.1.0</p>`, `/edit/main/docs/first.md"`},
		"v0.1.0/hooks/one/index.html": {`<a href="../../../index.html">development</a>`, `/blob/v0.1.0/hooks/one/README.md"`},
	} {
		text := read(t, output, file)
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not contain %s:\n%s", file, want, text)
			}
		}
	}
	if strings.Contains(read(t, output, "v0.1.0/hooks/one/index.html"), "/edit/") {
		t.Error("a document that exists only in a release has a link to edit it")
	}
}

// TestReleases: the versions are the working tree and the tags of releases, without pre-releases, the newest one first.
func TestReleases(t *testing.T) {
	root, _ := repositoryWith(t, nil)
	for _, arguments := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=a"},
		{"tag", "v0.9.0"}, {"tag", "v0.10.0"}, {"tag", "v0.10.0-rc.1"}, {"tag", "other"},
	} {
		if _, err := git(t.Context(), root, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	versions, err := readVersions(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range versions {
		names = append(names, s.Version)
		if len(s.pages) != 7 {
			t.Errorf("%s has %d pages", s.Version, len(s.pages))
		}
	}
	if want := []string{development, "v0.10.0", "v0.9.0"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
