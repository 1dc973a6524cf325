/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// TestMistakes: a mistake is told on the error stream, with exit code 1, and nothing is printed.
func TestMistakes(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no such command":   {[]string{"whi"}, `unknown command "whi"`},
		"no namespace":      {[]string{"why"}, "the argument NAMESPACE is missing; for example:\n  # Why does"},
		"no namespaces":     {[]string{"wait"}, "the argument NAMESPACE is missing; for example:"},
		"no initializer":    {[]string{"skip", "ns"}, "the argument INITIALIZER is missing; for example:"},
		"two namespaces":    {[]string{"why", "a", "b"}, `unexpected argument "b"; for example:`},
		"no such format":    {[]string{"why", "ns", "--output=xml"}, "--output=xml: give json, yaml, or nothing for text"},
		"negative patience": {[]string{"why", "ns", "--patience=-1s"}, "--patience=-1s: give a duration that is not negative"},
		"no cluster":        {[]string{"why", "ns", "--kubeconfig=" + kubeconfig}, `context was not found`},
		"no server":         {[]string{"status", "--server=http://127.0.0.1:1"}, "error: the connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"},
		"no such flag":      {[]string{"why", "ns", "--no"}, "unknown flag: --no; for the flags, run: kubectl nsinit why --help"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Run(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}, test.args...)
			if code != 1 || out.Len() > 0 || !strings.HasPrefix(errs.String(), "error: ") || !strings.Contains(errs.String(), test.says) {
				t.Errorf("exit code %d, prints %q, says %q", code, out.String(), errs.String())
			}
		})
	}
}

// TestHelp: plugins are called by kubectl, and say so.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, "why", "--help"); code != 0 || !strings.Contains(out.String(), "kubectl nsinit why NAMESPACE [flags]") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestVersion: the plugin tells its own version, as a user of kubectl knows it.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if code := Run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &out}, "--version"); code != 0 || out.String() != "kubectl nsinit version "+version.Get().String()+"\n" {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
