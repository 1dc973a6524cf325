/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/net/html"
)

// built is a page as Hugo wrote it.
type built struct {
	// url is that of the page, from the root of the site, and source the path of its document.
	url, source string
	root        *html.Node
	// ids is the number of elements with an ID.
	ids map[string]int
}

// readBuilt reads every page of a site.
func readBuilt(output string) ([]*built, error) {
	var pages []*built
	err := filepath.WalkDir(output, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		root, err := html.Parse(strings.NewReader(string(data)))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		relative, err := filepath.Rel(output, file)
		if err != nil {
			return err
		}
		p := &built{url: "/" + filepath.ToSlash(relative), root: root, ids: map[string]int{}}
		for node := range root.Descendants() {
			if id := attribute(node, "id"); id != "" {
				p.ids[id]++
			}
			if node.Data == "meta" && attribute(node, "name") == "source" {
				p.source = attribute(node, "content")
			}
		}
		pages = append(pages, p)
		return nil
	})
	return pages, err
}

func attribute(node *html.Node, key string) string {
	for _, attribute := range node.Attr {
		if attribute.Key == key {
			return attribute.Val
		}
	}
	return ""
}

// checker checks the pages of a site.
type checker struct {
	site   *site
	output string
	pages  map[string]*built
	errs   []error
}

// check returns an error for each link to nothing, each picture that is missing or that has no description, and
// each other defect of the pages, with the document and the line.
func check(s *site, output string, pages []*built) []error {
	c := &checker{site: s, output: output, pages: map[string]*built{}}
	for _, p := range pages {
		c.pages[p.url] = p
	}
	for _, p := range pages {
		for id, count := range p.ids {
			if count > 1 {
				c.fail(p, "", "%d elements have the ID %q: rename a heading", count, id)
			}
		}
		for node := range p.root.Descendants() {
			c.node(p, node)
		}
	}
	return c.errs
}

func (c *checker) node(p *built, node *html.Node) {
	switch node.Data {
	case "a", "link":
		if attribute(node, "class") == "picture" {
			return // the picture in it is checked
		}
		c.link(p, "link", attribute(node, "href"))
	case "script":
		c.link(p, "script", attribute(node, "src"))
	case "img":
		c.link(p, "picture", attribute(node, "src"))
		if attribute(node, "alt") == "" && within(node, "article") {
			c.fail(p, path.Base(attribute(node, "src")), "picture %q has no description: write ![what it shows](...)", attribute(node, "src"))
		}
	case "code":
		if attribute(node, "data-lang") == "mermaid" || strings.Contains(attribute(node, "class"), "language-mermaid") {
			c.fail(p, "```mermaid", "the site has no renderer for mermaid: draw an SVG picture in docs/images")
		}
	}
}

// link checks what a page refers to.
func (c *checker) link(p *built, kind, reference string) {
	to, err := url.Parse(reference)
	if err != nil {
		c.fail(p, reference, "%s %q: %v", kind, reference, err)
		return
	}
	if reference == "" || to.Scheme != "" || to.Host != "" {
		return
	}
	target := (&url.URL{Path: p.url}).ResolveReference(to)
	if info, err := os.Stat(filepath.Join(c.output, filepath.FromSlash(target.Path))); err != nil || info.IsDir() {
		c.fail(p, reference, "%s %q: the repository has no such file", kind, reference)
		return
	}
	if to.Fragment == "" {
		return
	}
	document := c.pages[target.Path]
	if document == nil || document.ids[to.Fragment] == 0 {
		original := c.original(p, target.Path, to.Fragment)
		c.fail(p, original, "%s %q: the document has no heading with this anchor", kind, original)
	}
}

// original returns a link as the document has it.
func (c *checker) original(p *built, target, fragment string) string {
	for _, document := range c.site.Pages {
		if document.URL != target || p.source == "" || document.Path == p.source {
			continue
		}
		if relative, err := filepath.Rel(path.Dir(p.source), document.Path); err == nil {
			return filepath.ToSlash(relative) + "#" + fragment
		}
	}
	return "#" + fragment
}

// fail records a defect, with the first line of the document that contains a text.
func (c *checker) fail(p *built, text, format string, args ...any) {
	where := p.source
	if document := c.site.Pages[p.source]; document == nil {
		where = p.url
	} else if before, _, found := strings.Cut(document.markdown, text); found && text != "" {
		where = fmt.Sprintf("%s:%d", p.source, strings.Count(before, "\n")+1)
	}
	c.errs = append(c.errs, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

// within returns whether a node is in an element.
func within(node *html.Node, element string) bool {
	for parent := range node.Ancestors() {
		if parent.Data == element {
			return true
		}
	}
	return false
}
