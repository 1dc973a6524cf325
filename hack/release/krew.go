/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/template"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// plugin is the manifest of the plugin for krew.
const plugin = `# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nsinit
spec:
  version: {{ .Version }}
  homepage: {{ .Home }}
  shortDescription: Explain and manage namespace initialization
  description: |
    Shows why a namespace does not open or does not terminate, on any cluster, and what helps.
    With nsinit installed: creates namespaces and waits until they are open, shows what they
    wait for, skips broken initializers, and checks the installation.
  platforms:
{{- range .Archives }}
    - selector:
        matchLabels:
          os: {{ .OS }}
          arch: {{ .Architecture }}
      uri: {{ $.Downloads }}/{{ $.Version }}/{{ .File }}
      sha256: {{ .Sum }}
      bin: kubectl-nsinit{{ if eq .OS "windows" }}.exe{{ end }}
{{- end }}
`

// krew writes the manifest of the plugin with the checksum of the archive of each platform.
func (r *release) krew(v1.Hash) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	type archive struct{ OS, Architecture, File, Sum string }
	var archives []archive
	for _, platform := range slices.Sorted(slices.Values(r.built)) {
		system, architecture, _ := strings.Cut(platform, "/")
		file := "kubectl-nsinit-" + system + "-" + architecture + ".tar.gz"
		if sums[file] == "" {
			return fmt.Errorf("there is no %s: build the plugin first", file)
		}
		archives = append(archives, archive{system, architecture, file, sums[file]})
	}
	parsed, err := template.New("plugin").Parse(plugin)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, map[string]any{"Version": r.version, "Home": home, "Downloads": downloads, "Archives": archives}); err != nil {
		return err
	}
	return r.write("krew-nsinit.yaml", text.Bytes())
}
