/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// repository is where readers find the files that have no page.
const repository = "https://github.com/nsinit/nsinit"

// contents is the document that lists the others.
const contents = "docs/README.md"

// development is the name of the version in the working tree. The other versions have the names of their tags.
const development = "development"

// site is what the theme knows of a version. Paths are those of the repository.
type site struct {
	Repository string `json:"repository"`
	Version    string `json:"version"`
	// Released is whether the documents are those of a tag: their defects cannot be fixed.
	Released bool `json:"released"`
	// Navigation holds the headings of docs/README.md, with the documents under each.
	Navigation []group `json:"navigation"`
	// Targets are what links lead to, by the path of a file or folder: a page, a picture, or the Git host.
	Targets map[string]string `json:"targets"`

	root string
	// pages are the documents, by path.
	pages map[string]*page
}

type group struct {
	Title string  `json:"title"`
	Pages []*page `json:"pages"`
}

// page is a document with its front matter.
type page struct {
	Title string `json:"title"`
	// URL is that of the page, from the root of the site, and Source the path of the document.
	URL    string `json:"url"`
	Source string `json:"source"`
	// Group is the heading in docs/README.md, "" if docs/README.md does not list the document.
	Group string `json:"group,omitempty"`
	// Parent is the URL of the page that lists this one instead of docs/README.md.
	Parent   string     `json:"parent,omitempty"`
	Previous *neighbour `json:"previous,omitempty"`
	Next     *neighbour `json:"next,omitempty"`
	// Host is the document on the Git host, and Edit where it can be changed, "" if the working tree does not contain it.
	Host string `json:"host"`
	Edit string `json:"edit,omitempty"`
	// Versions are the versions of the page, if there are several.
	Versions []neighbour `json:"versions,omitempty"`

	markdown string
}

type neighbour struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// isDocument returns whether a file becomes a page.
func isDocument(file string) bool {
	if strings.Contains("/"+file, "/testdata/") || !strings.HasSuffix(file, ".md") {
		return false
	}
	return path.Base(file) == "README.md" || path.Dir(file) == "." || strings.HasPrefix(file, "docs/")
}

// isPicture returns whether the site has a copy of a file.
func isPicture(file string) bool {
	return strings.HasPrefix(file, "docs/") && slices.Contains([]string{".png", ".svg"}, path.Ext(file))
}

var title = regexp.MustCompile(`(?m)^# (.+)$`)

// readSite reads the documents among files.
func readSite(version, root string, files []string) (*site, error) {
	s := &site{Repository: repository, Version: version, Released: version != development, Targets: map[string]string{}, root: root, pages: map[string]*page{}}
	reference := version
	if version == development {
		reference = "main"
	}
	for _, file := range files {
		s.Targets[file] = repository + "/blob/" + reference + "/" + file
		for dir := path.Dir(file); ; dir = path.Dir(dir) {
			if s.Targets[dir] == "" {
				s.Targets[dir] = repository + "/tree/" + reference + "/" + strings.TrimPrefix(dir, ".")
			}
			if dir == "." {
				break
			}
		}
	}
	for _, file := range files {
		if isPicture(file) {
			s.Targets[file] = "/" + file
		}
		if !isDocument(file) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		heading := title.FindSubmatch(data)
		if heading == nil {
			return nil, fmt.Errorf("%s: no title: begin it with a line such as \"# Concepts\"", file)
		}
		url := "/" + strings.TrimSuffix(file, ".md") + ".html"
		if path.Base(file) == "README.md" {
			url = path.Join("/", path.Dir(file), "index.html")
			s.Targets[path.Dir(file)] = url // Git hosts show this file for the folder
		}
		s.pages[file] = &page{Title: strings.TrimSpace(string(heading[1])), URL: url, Source: file, Host: s.Targets[file], markdown: string(data)}
		s.Targets[file] = url
	}
	return s, s.navigate()
}

// write writes what Hugo reads: the documents with their front matter, the pictures, and the data of the theme.
func (s *site) write(dir string) error {
	for file, p := range s.pages {
		matter, err := json.Marshal(p)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "/", "-") + ".md"
		if file == "README.md" {
			name = "_index.md" // the home page
		}
		if err := writeFile(filepath.Join(dir, "content", name), append(append(matter, "\n"...), p.markdown...)); err != nil {
			return err
		}
	}
	for file, url := range s.Targets {
		if !isPicture(file) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.root, file))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, "static", url), data); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, "data", "site.json"), s)
}
