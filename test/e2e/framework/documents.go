/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These documents in docs have commands for administrators.
const (
	BackupGuide          = "backup.md"
	FreezeGuide          = "freeze.md"
	GitOpsGuide          = "gitops.md"
	HardenGuide          = "harden.md"
	InstallGuide         = "install.md"
	MoveStorageGuide     = "move-storage.md"
	PortalsGuide         = "portals.md"
	Quickstart           = "quickstart.md"
	ReleaseGuide         = "release.md"
	SkipInitializerGuide = "skip-initializer.md"
	StorageGuide         = "storage.md"
	TroubleshootGuide    = "troubleshoot.md"
	UninstallGuide       = "uninstall.md"
	UpgradeGuide         = "upgrade.md"
	WhyGuide             = "why.md"
)

// Documented returns the blocks of commands under a heading of a document.
func (c *Cluster) Documented(t *testing.T, document, heading string) []string {
	t.Helper()
	return c.blocks(t, document, heading, "console")
}

// blocks returns the blocks of a language under a heading of a document.
func (c *Cluster) blocks(t *testing.T, document, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	var all []string
	for {
		_, rest, fenced := strings.Cut(section, "```"+language+"\n")
		commands, rest, closed := strings.Cut(rest, "```")
		if !fenced || !closed {
			break
		}
		all, section = append(all, commands), rest
	}
	if !found || len(all) == 0 {
		t.Fatalf("docs/%s has no %s under %q", document, language, heading)
	}
	return all
}

// DocumentedFile returns the first file in YAML under a heading of a document.
func (c *Cluster) DocumentedFile(t *testing.T, document, heading string) string {
	t.Helper()
	return c.blocks(t, document, heading, "yaml")[0]
}

// RunDocumented runs the first block of commands under a heading of a document, and returns their output. It replaces words in
// capitals by values.
func (c *Cluster) RunDocumented(t *testing.T, document, heading string, words map[string]string) string {
	t.Helper()
	out, err := c.TryDocumented(t, document, heading, words)
	if err != nil {
		t.Fatalf("%s: %v\n%s", heading, err, out)
	}
	return out
}

// TryDocumented is RunDocumented for commands that may fail.
func (c *Cluster) TryDocumented(t *testing.T, document, heading string, words map[string]string) (string, error) {
	t.Helper()
	return c.Shell(t, c.Documented(t, document, heading)[0], words)
}

// Shell runs commands in the folder of the project, after replacing words by values. It returns their output.
func (c *Cluster) Shell(t *testing.T, commands string, words map[string]string) (string, error) {
	t.Helper()
	// A word can be a part of a longer one.
	for _, word := range slices.SortedFunc(maps.Keys(words), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		commands = strings.ReplaceAll(commands, word, words[word])
	}
	command := exec.CommandContext(t.Context(), "bash", "-o", "errexit", "-o", "pipefail", "-c", commands)
	command.Dir = c.Root
	command.Env = c.Environ()
	out, err := command.CombinedOutput()
	return string(out), err
}
