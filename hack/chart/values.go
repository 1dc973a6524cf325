/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// components are the sections of values.yaml for the programs, by the name of their workload.
func components() map[string]string {
	return map[string]string{
		"nsinit-apiserver":          "apiserver",
		"nsinit-controller-manager": "controllerManager",
		"policy-population":         "policyPopulation",
	}
}

// marked is a line of YAML whose value is a marker: its indentation, its key and the name of the marker.
func marked() *regexp.Regexp { return regexp.MustCompile(`(?m)^( *)([^ \n]+): '@([a-zA-Z]+)@'\n`) }

// last is a key that sorts after all others.
const last = "~"

func marker(name string) string { return "@" + name + "@" }

// withValues returns the template of an object: values replace or extend parts of it.
func withValues(object map[string]any) (string, error) {
	lines := map[string]string{} // the text of each marker: %s is the indentation
	kind, _ := object["kind"].(string)
	labels := "{{- with $.Values.commonLabels }}"
	if slices.Contains([]string{"PodMonitor", "PrometheusRule", "ServiceMonitor"}, kind) {
		labels = "{{- with merge (dict) $.Values.serviceMonitorLabels $.Values.commonLabels }}"
	}
	label(object, "labels", labels, lines)
	if kind == "Deployment" || kind == "StatefulSet" {
		name := object["metadata"].(map[string]any)["name"].(string)
		section := components()[name]
		if section == "" {
			return "", fmt.Errorf("%s %s has no section in values.yaml: add it, and to components", kind, name)
		}
		workload(object["spec"].(map[string]any), "$.Values."+section, kind, lines)
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		return "", err
	}
	// Templates in the object are those of Prometheus.
	text := inNamespace(parameters(strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`).Replace(string(data))))
	used := map[string]bool{}
	text = marked().ReplaceAllStringFunc(text, func(line string) string {
		found := marked().FindStringSubmatch(line)
		used[found[3]] = true
		depth := len(found[1])
		if !strings.Contains(found[2], last) {
			depth += 2
		}
		return strings.NewReplacer("%s", found[1], "INDENT", fmt.Sprint(depth)).Replace(lines[found[3]])
	})
	if len(used) != len(lines) {
		return "", fmt.Errorf("%s: of the markers %q, these were found: %q", kind, slices.Sorted(maps.Keys(lines)), slices.Sorted(maps.Keys(used)))
	}
	return text, nil
}

// label adds labels of the values to those of an object, or gives it labels.
func label(object map[string]any, name, with string, lines map[string]string) {
	metadata := object["metadata"].(map[string]any)
	if labels, has := metadata["labels"].(map[string]any); has {
		labels[last] = marker(name)
		lines[name] = "%s" + with + "\n%s{{- toYaml . | nindent INDENT }}\n%s{{- end }}\n"
	} else {
		metadata["labels"] = marker(name)
		lines[name] = "%s" + with + "\n%slabels:\n%s  {{- toYaml . | nindent INDENT }}\n%s{{- end }}\n"
	}
}

// workload puts values into the spec of a Deployment or a StatefulSet. values is the section of its program.
func workload(spec map[string]any, values, kind string, lines map[string]string) {
	if kind == "Deployment" { // a StatefulSet has the embedded etcd, and one replica
		lines["replicas"] = fmt.Sprintf("%%sreplicas: {{ %s.replicas | default %v }}\n", values, spec["replicas"])
		spec["replicas"] = marker("replicas")
	}
	if volumes, has := spec["volumeClaimTemplates"].([]any); has {
		volumes[0].(map[string]any)["spec"].(map[string]any)["storageClassName"] = marker("storageClassName")
		lines["storageClassName"] = "%s{{- with $.Values.volume.storageClassName }}\n%sstorageClassName: {{ . | quote }}\n%s{{- end }}\n"
	}
	template := spec["template"].(map[string]any)
	label(template, "podLabels", "{{- with merge (dict) $.Values.podLabels $.Values.commonLabels }}", lines)
	pod := template["spec"].(map[string]any)
	for _, key := range []string{"imagePullSecrets", "nodeSelector", "tolerations"} {
		pod[key] = marker(key)
		lines[key] = "%s{{- with $.Values." + key + " }}\n%s" + key + ":\n%s  {{- toYaml . | nindent INDENT }}\n%s{{- end }}\n"
	}
	usual := ""
	if affinity, has := pod["affinity"]; has {
		data, _ := yaml.Marshal(affinity)
		usual = "%s{{- else }}\n%saffinity:\n"
		for line := range strings.Lines(string(data)) {
			usual += "%s  " + line
		}
	}
	pod["affinity"] = marker("affinity")
	lines["affinity"] = "%s{{- with " + values + ".affinity }}\n%saffinity:\n%s  {{- toYaml . | nindent INDENT }}\n" + usual + "%s{{- end }}\n"
	settings(pod["containers"], values, "", lines)
	if sidecars, has := pod["initContainers"]; has {
		settings(sidecars, "$.Values.embeddedEtcd", "OfEtcd", lines)
	}
}

// settings puts values into the only container of a list. values is its section. suffix distinguishes the markers of several containers.
func settings(containers any, values, suffix string, lines map[string]string) {
	container := containers.([]any)[0].(map[string]any)
	container["resources"] = marker("resources" + suffix)
	lines["resources"+suffix] = "%sresources:\n%s  {{- toYaml " + values + ".resources | nindent INDENT }}\n"
	for list, value := range map[string]string{"args": "extraArgs", "env": "extraEnv"} {
		key := ""
		if container[list] == nil {
			key = "%s" + list + ":\n"
		}
		container[list+last] = marker(value + suffix)
		lines[value+suffix] = "%s{{- with " + values + "." + value + " }}\n" + key + "%s{{- toYaml . | nindent INDENT }}\n%s{{- end }}\n"
	}
}
