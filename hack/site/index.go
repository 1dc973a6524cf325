/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// section is a part of a page that the search finds: a heading, and the text up to the next one.
type section struct {
	// Page is the title of the page, and Group the heading in docs/README.md.
	Page  string `json:"page"`
	Group string `json:"group,omitempty"`
	// Heading is "" for the text before the first one.
	Heading string `json:"heading,omitempty"`
	// URL is relative to the root of the site.
	URL  string `json:"url"`
	Text string `json:"text"`
}

// index returns the sections of every page.
func index(s *site, pages []*built) []section {
	var sections []section
	for _, p := range pages {
		document := s.Pages[p.source]
		if document == nil {
			continue
		}
		url := strings.TrimPrefix(p.url, "/")
		texts := []section{{Page: document.Title, Group: document.Group, URL: url}}
		for node := range p.root.Descendants() {
			if node.Data != "article" {
				continue
			}
			for child := range node.ChildNodes() {
				if slices.Contains([]string{"h2", "h3", "h4"}, child.Data) {
					texts = append(texts, section{Page: document.Title, Group: document.Group, Heading: text(child), URL: url + "#" + attribute(child, "id")})
				} else if child.Data != "h1" {
					last := &texts[len(texts)-1]
					last.Text = strings.TrimSpace(last.Text + " " + text(child))
				}
			}
		}
		sections = append(sections, texts...)
	}
	return sections
}

// text returns the text of a node, without the links to headings.
func text(node *html.Node) string {
	var words strings.Builder
	for child := range node.Descendants() {
		switch {
		case child.Type == html.TextNode && attribute(child.Parent, "class") != "anchor":
			words.WriteString(child.Data)
		case slices.Contains([]string{"p", "li", "td", "th", "tr", "br", "pre"}, child.Data):
			words.WriteString(" ")
		}
	}
	if node.Type == html.TextNode {
		words.WriteString(node.Data)
	}
	return strings.Join(strings.Fields(words.String()), " ")
}

// writeIndex writes the sections as a script, which a browser loads also from a folder, without a server.
func writeIndex(output string, sections []section) error {
	data, err := json.Marshal(sections)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(output, "search-index.js"), slices.Concat([]byte("globalThis.searchIndex = "), data, []byte(";\n")))
}
