/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// navigate orders the pages as docs/README.md does. It returns an error that names each document in docs/ that
// docs/README.md does not list. The README.md of a folder below docs lists the documents of the folder, which are not in the navigation.
func (s *site) navigate() error {
	list := s.pages[contents]
	if list == nil {
		return fmt.Errorf("%s is missing: it lists the documents, and so the navigation", contents)
	}
	var order []*page
	for line := range strings.Lines(list.markdown) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			s.Navigation = append(s.Navigation, group{Title: strings.TrimSpace(heading)})
			continue
		}
		for _, found := range link.FindAllStringSubmatch(line, -1) {
			p := s.document(path.Join(path.Dir(contents), found[1]))
			if p == nil || p == list || slices.Contains(order, p) {
				continue
			}
			if len(s.Navigation) == 0 {
				return fmt.Errorf("%s: a link to %s comes before the first heading \"## ...\"", contents, p.Source)
			}
			current := &s.Navigation[len(s.Navigation)-1]
			p.Group = current.Title
			current.Pages = append(current.Pages, p)
			order = append(append(order, p), s.listed(p)...)
		}
	}
	for i, p := range order {
		if i > 0 {
			p.Previous = &neighbour{Title: order[i-1].Title, URL: order[i-1].URL}
		}
		if i+1 < len(order) {
			p.Next = &neighbour{Title: order[i+1].Title, URL: order[i+1].URL}
		}
	}
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(s.pages)) {
		if strings.HasPrefix(file, "docs/") && file != contents && s.pages[file].Group == "" {
			errs = append(errs, fmt.Errorf("%s: %s does not list it: add a link under the heading of its readers", file, contents))
		}
	}
	return errors.Join(errs...)
}

// listed returns the pages that the README.md of a folder below docs lists, and adds them to its group.
func (s *site) listed(readme *page) []*page {
	dir := path.Dir(readme.Source)
	if path.Base(readme.Source) != "README.md" || !strings.HasPrefix(dir, "docs/") {
		return nil
	}
	var pages []*page
	for _, found := range link.FindAllStringSubmatch(readme.markdown, -1) {
		p := s.pages[path.Join(dir, found[1])]
		if p == nil || p == readme || path.Dir(p.Source) != dir || p.Group != "" {
			continue
		}
		p.Group, p.Parent = readme.Group, readme.URL
		pages = append(pages, p)
	}
	return pages
}

// document returns the page of a file, or of the README.md of a folder; nil if it has none.
func (s *site) document(file string) *page {
	if p := s.pages[file]; p != nil {
		return p
	}
	return s.pages[path.Join(file, "README.md")]
}
