/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command reference writes the references in docs from the code: the metrics, the flags of the programs, the commands of the kubectl
// plugin, and the names that users see in objects. The reference of the API is by crd-ref-docs, with the templates of this folder.
//
//	reference ROOT
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// written is the first line after the title of a page. Its argument is where the text comes from.
const written = "<!-- Written by hack/reference from %s. Edit that, and run make generate. -->\n"

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "cannot write the references: %v\n", err)
		os.Exit(1)
	}
}

func run(root string) error {
	// Defaults below the home folder are the same for every user who runs the command.
	if err := os.Setenv("HOME", "~"); err != nil {
		return err
	}
	reference := filepath.Join(root, "docs", "reference")
	for file, page := range map[string]func() (string, error){
		filepath.Join(root, "docs", "metrics.md"): metricsPage,
		filepath.Join(reference, "flags.md"):      flagsPage,
		filepath.Join(reference, "names.md"):      func() (string, error) { return namesPage(root) },
	} {
		text, err := page()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := write(file, text); err != nil {
			return err
		}
	}
	return pluginPages(filepath.Join(reference, "plugin"))
}

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// cell returns a text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ").Replace(strings.TrimSpace(text))
}
