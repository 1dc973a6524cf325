/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nsinit/nsinit/pkg/cli"
)

// pluginPages writes a page for each command of the kubectl plugin into a folder, which it replaces. That of the plugin itself is README.md.
func pluginPages(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	plugin := cli.NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	for _, command := range append([]*cobra.Command{plugin}, subcommands(plugin)...) {
		command.DisableAutoGenTag = true
		var page strings.Builder
		if err := doc.GenMarkdownCustom(command, &page, pageOf(plugin)); err != nil {
			return err
		}
		// A page begins with a heading of the first level.
		text := regexp.MustCompile(`(?m)^##+ `).ReplaceAllStringFunc(page.String(), func(heading string) string { return heading[1:] })
		text = regexp.MustCompile("(?s)## Options inherited from parent commands\n\n```.*?```").ReplaceAllString(text, "Each command also has the [connection flags](README.md#options).")
		title, rest, _ := strings.Cut(strings.NewReplacer("## SEE ALSO", "## See also", "\t - ", ": ").Replace(text), "\n")
		name := strings.ReplaceAll(command.CommandPath(), " ", "_") + ".md"
		text = title + "\n\n" + fmt.Sprintf(written, "the help of the command") + strings.TrimRight(rest, "\n") + "\n"
		if err := write(filepath.Join(folder, pageOf(plugin)(name)), text); err != nil {
			return err
		}
	}
	return nil
}

// pageOf returns a function that yields the file for the one that cobra names.
func pageOf(plugin *cobra.Command) func(string) string {
	prefix := strings.ReplaceAll(plugin.CommandPath(), " ", "_")
	return func(name string) string {
		if name == prefix+".md" {
			return "README.md"
		}
		return strings.TrimPrefix(name, prefix+"_")
	}
}
