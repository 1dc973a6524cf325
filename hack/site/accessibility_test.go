/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// chromium returns the context of a page in a headless Chromium.
func chromium(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(2*time.Minute),
		chromedp.NoSandbox) // root and containers need it, and the browser opens only the files of the site
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	page, closePage := chromedp.NewContext(allocator)
	t.Cleanup(closePage)
	if err := chromedp.Do(page); err != nil {
		t.Fatalf("%v: install Chromium with hack/install-system-packages.sh", err)
	}
	return page
}

// must runs an action in the page, for at most a minute.
func must[T any](t *testing.T, page context.Context, action chromedp.Action[T]) T {
	t.Helper()
	limited, stop := context.WithTimeout(page, time.Minute)
	defer stop()
	value, err := chromedp.Run(limited, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// violation is what axe-core has found.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// audit checks the open page with rules of axe-core, and that the page does not scroll horizontally.
func audit(t *testing.T, page context.Context, rules string) {
	t.Helper()
	must(t, page, chromedp.Evaluate[chromedp.Void](read(t, "testdata", "axe-core", "axe.min.js")))
	check := `axe.run({` + rules + `, resultTypes: ["violations"]}).then((results) => results.violations)`
	for _, found := range must(t, page, chromedp.Evaluate[[]violation](check, chromedp.EvalAwaitPromise)) {
		for _, node := range found.Nodes {
			t.Errorf("%s: %s: %s: %s", found.ID, found.Help, node.HTML, node.Summary)
		}
	}
	if wider := must(t, page, chromedp.Evaluate[int](`document.documentElement.scrollWidth - document.documentElement.clientWidth`)); wider > 0 {
		t.Errorf("the page is %d pixels wider than the window", wider)
	}
}

// TestAccessibility: the site conforms to WCAG 2.2 AA, as far as a program can check it, on large and small screens, light and dark,
// and people can use it with the keyboard alone.
func TestAccessibility(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a browser")
	}
	root := filepath.Join("..", "..")
	files, err := repositoryFiles(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	var versions []*site
	for _, name := range []string{development, "v0.1.0"} { // a second one, for the menu
		s, err := readSite(name, root, files)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, s)
	}
	output, err := filepath.Abs(filepath.Join(t.TempDir(), "site"))
	if err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), ".", output, versions...); err != nil {
		t.Fatal(err)
	}
	page := chromium(t)
	open := func(url string, width, height int64, colours string) {
		t.Helper()
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}}
		if _, err := chromedp.Call(page, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatal(err)
		}
		must(t, page, chromedp.Steps(chromedp.EmulateViewport(width, height), chromedp.Navigate("file://"+filepath.Join(output, url))))
	}
	const all = `runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`
	for _, url := range []string{"index.html", "docs/performance.html", "docs/metrics.html"} {
		for _, width := range []int64{390, 1280} {
			for _, colours := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s, %d pixels, %s", url, width, colours), func(t *testing.T) {
					open(url, width, 900, colours)
					audit(t, page, all)
				})
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(versions[0].pages)) {
		t.Run(file, func(t *testing.T) {
			open(versions[0].pages[file].URL, 390, 900, "light")
			audit(t, page, `runOnly: ["heading-order", "page-has-heading-one", "empty-heading", "image-alt", "link-name", "duplicate-id-aria"]`)
		})
	}
	t.Run("search", func(t *testing.T) {
		for _, query := range []string{"freeze", "xyzzyplugh"} {
			open("index.html", 1280, 900, "light")
			must(t, page, chromedp.Steps(chromedp.SendKeys("#site-search", query), chromedp.WaitVisible("#site-results")))
			audit(t, page, all)
		}
	})
	t.Run("keyboard", func(t *testing.T) {
		open("index.html", 1280, 900, "light")
		checkKeyboard(t, page)
	})
}

// checkKeyboard presses keys on the open page. The first Tab shows the link that skips the navigation, and each Tab moves the focus
// to an element that shows it.
func checkKeyboard(t *testing.T, page context.Context) {
	t.Helper()
	const focused = `(() => {
		const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
		const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && box.width > 0 && box.bottom > 0 && box.top < innerHeight;
		return (shown ? "" : "hidden ") + (element.id || element.className || element.textContent.trim() || element.tagName);
	})()`
	var seen []string
	for range 25 {
		must(t, page, chromedp.KeyEvent(kb.Tab))
		name := must(t, page, chromedp.Evaluate[string](focused))
		if strings.HasPrefix(name, "hidden ") {
			t.Errorf("the focus is not visible: %s", name)
		}
		seen = append(seen, name)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(seen))); seen[0] != "skip" || len(distinct) < 20 {
		t.Errorf("Tab moves the focus to %q", seen)
	}
	must(t, page, chromedp.Steps(chromedp.Reload(), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)))
	if name := must(t, page, chromedp.Evaluate[string](`document.activeElement.id`)); name != "site-content" {
		t.Errorf("the link that skips the navigation leads to %q", name)
	}
}
