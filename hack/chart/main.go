/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command chart generates the templates of the Helm chart from the kustomizations in artifacts/deploy. A
// difference between two kustomizations becomes a condition on a value.
//
//	chart ROOT
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// condition decides whether an object is part of an installation.
type condition struct {
	// overlay and components are the kustomization.
	overlay    string
	components []string
	// is is the condition for the differences from the first kustomization, as a template.
	is string
}

// conditions are the kustomizations from which the chart is generated. Each differs from the first in one
// respect. Each object differs in at most one of them.
func conditions() []condition {
	return []condition{
		{overlay: "embedded"},
		{overlay: "ha", is: `eq .Values.storage "etcd"`},
		{overlay: "embedded-cert-manager", is: ".Values.certManager"},
		{overlay: "embedded", components: []string{"stamp-webhook"}, is: `semverCompare "<1.36-0" .Capabilities.KubeVersion.Version`},
		{overlay: "embedded", components: []string{"service-monitor"}, is: ".Values.serviceMonitor"},
		{overlay: "embedded", components: []string{"strict-name-reuse"}, is: ".Values.strictNameReuse"},
		{overlay: "embedded", components: []string{"objects"}, is: ".Values.objects"},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot write the chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the folder of the checkout, not %q", args)
	}
	templates, err := generate(args[0])
	if err != nil {
		return err
	}
	dir := filepath.Join(args[0], "artifacts", "helm", "nsinit", "templates")
	before, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range before {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(templates[name]), 0o644); err != nil { //nolint:gosec // not secret
			return err
		}
	}
	return nil
}

const header = `# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Written by hack/chart from artifacts/deploy: change it there, and run make generate.
`

// generate returns the templates by file name.
func generate(root string) (map[string]string, error) {
	var builds []map[string]string
	for _, c := range conditions() {
		objects, err := build(root, c.overlay, c.components...)
		if err != nil {
			return nil, err
		}
		texts := map[string]string{}
		for name, object := range objects {
			if texts[name], err = withValues(object); err != nil {
				return nil, err
			}
		}
		builds = append(builds, texts)
	}
	names := map[string]string{}
	for _, objects := range builds {
		maps.Copy(names, objects)
	}
	templates := map[string]string{"check.yaml": header + `{{- if and (eq .Values.storage "embedded") (gt (int .Values.apiserver.replicas) 1) }}
{{- fail (printf "apiserver.replicas is %d, and storage is embedded: the embedded etcd has one replica; set storage to etcd" (int .Values.apiserver.replicas)) }}
{{- end }}
{{- if and .Values.image.tag .Values.image.digest }}
{{- fail (printf "image.tag is %s, and image.digest is %s: the digest selects the image; to use the tag, set image.digest to an empty text" .Values.image.tag .Values.image.digest) }}
{{- end }}
{{- if and .Values.objects (semverCompare "<1.36-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "objects is true, and the version of Kubernetes is %s: initializers for pods and Jobs need Kubernetes 1.36; set objects to false" .Capabilities.KubeVersion.Version) }}
{{- end }}
`}
	for name := range names {
		text, err := template(name, builds)
		if err != nil {
			return nil, err
		}
		templates[name+".yaml"] = header + text
	}
	return templates, nil
}

// template returns the template of one object.
func template(name string, builds []map[string]string) (string, error) {
	usual := builds[0][name]
	different := -1
	for n, objects := range builds[1:] {
		if objects[name] != usual {
			if different >= 0 {
				return "", fmt.Errorf("%s depends on %q and on %q: make it depend on one condition", name, conditions()[different].is, conditions()[n+1].is)
			}
			different = n + 1
		}
	}
	if different < 0 {
		return usual, nil
	}
	is, then := conditions()[different].is, builds[different][name]
	switch {
	case usual == "":
		return "{{- if " + is + " }}\n" + then + "{{- end }}\n", nil
	case then == "":
		return "{{- if not (" + is + ") }}\n" + usual + "{{- end }}\n", nil
	}
	return "{{- if " + is + " }}\n" + then + "{{- else }}\n" + usual + "{{- end }}\n", nil
}

// parameters puts values into lines of an object.
func parameters(text string) string {
	return strings.NewReplacer(
		"image: nsinit:dev\n", `image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"`+"\n",
		"imagePullPolicy: IfNotPresent\n", "imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
		"storage: 5Gi\n", "storage: {{ .Values.volume.size }}\n",
		etcdServers, "value: {{ .Values.etcd.servers | quote }}\n",
		exemptNamespaces, exemptNamespaces+moreExemptions,
	).Replace(text)
}

// inNamespace puts the namespace of the release in place of the delivered one. A value that is only the namespace is quoted: a
// namespace can look like a number.
func inNamespace(text string) string {
	const delivered, ofRelease = "nsinit-system", "{{ $.Release.Namespace }}"
	text = regexp.MustCompile(`(?m)^( *(?:- |[^ \n]+: |- [^ \n]+: ))`+delivered+`$`).ReplaceAllString(text, `${1}"`+strings.ReplaceAll(ofRelease, "$", "$$")+`"`)
	return strings.ReplaceAll(text, delivered, ofRelease)
}

const etcdServers = "value: https://etcd-0.etcd.nsinit-system.svc:2379,https://etcd-1.etcd.nsinit-system.svc:2379,https://etcd-2.etcd.nsinit-system.svc:2379\n"

// exemptNamespaces is the end of the list of exempt namespaces, and moreExemptions what values add to the list.
const (
	exemptNamespaces = "    kube-system\n    nsinit-system\n"
	moreExemptions   = `    {{- range .Values.exemptions.namespaces }}
    {{ . }}
    {{- end }}
  {{- range $key := list "groups" "namePrefixes" "onlyGroups" "users" }}
  {{- with index $.Values.exemptions $key }}
  {{ $key }}: {{ join "\n" . | quote }}
  {{- end }}
  {{- end }}
`
)

// build returns the objects of an overlay with components, by kind and name, without the namespace, which
// Helm creates.
func build(root, overlay string, components ...string) (map[string]map[string]any, error) {
	dir, err := os.MkdirTemp("", "chart-") // not in the tree, which others read meanwhile
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	from, linkErr := filepath.EvalSymlinks(dir)
	to, err := filepath.Abs(filepath.Join(root, "artifacts", "deploy"))
	if err := errors.Join(linkErr, err); err != nil {
		return nil, err
	}
	manifests, err := filepath.Rel(from, to) // kustomize refuses an absolute path
	if err != nil {
		return nil, err
	}
	text := "resources: [" + manifests + "/overlays/" + overlay + "]\n"
	if folder := manifests + "/components/"; len(components) > 0 {
		text += "components: [" + folder + strings.Join(components, ", "+folder) + "]\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("overlay %s with %q: %w", overlay, components, err)
	}
	objects := map[string]map[string]any{}
	for _, resource := range resources.Resources() {
		if resource.GetKind() == "Namespace" {
			continue
		}
		object, err := resource.Map()
		if err != nil {
			return nil, err
		}
		name := strings.ToLower(resource.GetKind() + "-" + strings.ReplaceAll(resource.GetName(), ":", "-"))
		if _, twice := objects[name]; twice {
			return nil, fmt.Errorf("there are two objects %s", name)
		}
		objects[name] = object
	}
	return objects, nil
}
