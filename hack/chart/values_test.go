/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// objects returns the rendered objects by the name of their template, and NOTES.txt.
func objects(t *testing.T, values string) (map[string]map[string]any, string) {
	t.Helper()
	rendered, err := render(t, "v1.37.2", "nsinit-system", values)
	if err != nil {
		t.Fatal(err)
	}
	all, notes := map[string]map[string]any{}, ""
	for file, text := range rendered {
		if filepath.Base(file) == "NOTES.txt" {
			notes = text
			continue
		}
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v in\n%s", file, err, text)
		}
		if object != nil {
			all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = object
		}
	}
	return all, notes
}

// at returns a part of an object.
func at(object any, path ...string) any {
	for _, key := range path {
		if list, is := object.([]any); is {
			object = list[0]
		}
		object, _ = object.(map[string]any)[key]
	}
	return object
}

// TestWorkloadValues: each value of the programs has an effect on them, and on nothing else.
func TestWorkloadValues(t *testing.T) {
	const digest = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	pod := func(keys ...string) []string { return append([]string{"spec", "template", "spec"}, keys...) }
	for name, test := range map[string]struct {
		values, workload string
		path             []string
		want             string
	}{
		"tag":                    {"image: {repository: registry.example.com/nsinit, tag: v9}", "deployment-policy-population", pod("containers", "image"), "registry.example.com/nsinit:v9"},
		"digest":                 {"image: {digest: '" + digest + "'}", "statefulset-nsinit-apiserver", pod("containers", "image"), "nsinit@" + digest},
		"storage class":          {"volume: {storageClassName: fast}", "statefulset-nsinit-apiserver", []string{"spec", "volumeClaimTemplates", "spec", "storageClassName"}, "fast"},
		"version":                {"{}", "deployment-nsinit-controller-manager", pod("containers", "image"), "nsinit:v0.1.0"},
		"pull policy":            {"image: {pullPolicy: Never}", "deployment-nsinit-controller-manager", pod("containers", "imagePullPolicy"), "Never"},
		"pull secrets":           {"imagePullSecrets: [{name: registry}]", "deployment-policy-population", pod("imagePullSecrets"), "- name: registry"},
		"node selector":          {"nodeSelector: {pool: infra}", "statefulset-nsinit-apiserver", pod("nodeSelector"), "pool: infra"},
		"tolerations":            {"tolerations: [{key: infra, operator: Exists}]", "deployment-nsinit-controller-manager", pod("tolerations"), "- key: infra\n  operator: Exists"},
		"replicas by default":    {"storage: etcd", "deployment-nsinit-apiserver", []string{"spec", "replicas"}, "2"},
		"replicas":               {"storage: etcd\napiserver: {replicas: 3}", "deployment-nsinit-apiserver", []string{"spec", "replicas"}, "3"},
		"one replica":            {"apiserver: {replicas: 1}", "statefulset-nsinit-apiserver", []string{"spec", "replicas"}, "1"},
		"replicas of another":    {"controllerManager: {replicas: 5}", "deployment-nsinit-controller-manager", []string{"spec", "replicas"}, "5"},
		"replicas of the third":  {"policyPopulation: {replicas: 1}", "deployment-policy-population", []string{"spec", "replicas"}, "1"},
		"resources":              {"apiserver: {resources: {requests: {cpu: 2}, limits: {memory: 1Gi}}}", "statefulset-nsinit-apiserver", pod("containers", "resources"), "limits:\n  memory: 1Gi\nrequests:\n  cpu: 2\n  memory: 128Mi"},
		"no limit":               {"policyPopulation: {resources: {limits: null}}", "deployment-policy-population", pod("containers", "resources"), "requests:\n  cpu: 50m\n  memory: 64Mi"},
		"affinity":               {"controllerManager: {affinity: {nodeAffinity: {}, podAntiAffinity: {}}}", "deployment-nsinit-controller-manager", pod("affinity"), "nodeAffinity: {}\npodAntiAffinity: {}"},
		"affinity of a replica":  {"apiserver: {affinity: {nodeAffinity: {}}}", "statefulset-nsinit-apiserver", pod("affinity"), "nodeAffinity: {}"},
		"flags":                  {"policyPopulation: {extraArgs: [--v=4, --x=y]}", "deployment-policy-population", pod("containers", "args"), "- --leader-elect\n- --health-bind-address=:8081\n- --v=2\n- --v=4\n- --x=y"},
		"variables":              {"policyPopulation: {extraEnv: [{name: GOGC, value: '50'}]}", "deployment-policy-population", pod("containers", "env"), "- name: POD_NAMESPACE\n  valueFrom:\n    fieldRef:\n      fieldPath: metadata.namespace\n- name: GOGC\n  value: \"50\""},
		"resources of etcd":      {"embeddedEtcd: {resources: {limits: {memory: 1Gi}}}", "statefulset-nsinit-apiserver", pod("initContainers", "resources", "limits"), "memory: 1Gi"},
		"flags of etcd":          {"embeddedEtcd: {extraArgs: [--embedded-etcd-quota-bytes=1]}", "statefulset-nsinit-apiserver", pod("initContainers", "args"), "- --embedded-etcd-dir=/var/lib/nsinit/etcd\n- --embedded-etcd-quota-bytes=1"},
		"variables of etcd":      {"embeddedEtcd: {extraEnv: [{name: GOGC, value: '50'}]}", "statefulset-nsinit-apiserver", pod("initContainers", "env"), "- name: GOGC\n  value: \"50\""},
		"labels of pods":         {"podLabels: {team: platform}\ncommonLabels: {team: all, cost: x}", "deployment-policy-population", []string{"spec", "template", "metadata", "labels"}, "app.kubernetes.io/name: policy-population\napp.kubernetes.io/part-of: nsinit\ncost: x\nteam: platform"},
		"labels of a selector":   {"podLabels: {team: platform}\ncommonLabels: {team: all}", "deployment-policy-population", []string{"spec", "selector", "matchLabels"}, "app.kubernetes.io/name: policy-population"},
		"labels of the workload": {"podLabels: {team: platform}\ncommonLabels: {team: all}", "deployment-policy-population", []string{"metadata", "labels"}, "app.kubernetes.io/name: policy-population\napp.kubernetes.io/part-of: nsinit\nteam: all"},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := objects(t, test.values)
			if got := strings.TrimSpace(canonical(t, at(all[test.workload], test.path...))); got != test.want {
				t.Errorf("%s is\n%s\nwant\n%s", strings.Join(test.path, "."), got, test.want)
			}
			usual, _ := objects(t, "{}")
			for _, other := range slices.Sorted(maps.Keys(usual)) {
				if !strings.Contains(test.values, "commonLabels") && !strings.Contains(test.values, "storage") &&
					at(usual[other], "kind") != "Deployment" && at(usual[other], "kind") != "StatefulSet" && canonical(t, all[other]) != canonical(t, usual[other]) {
					t.Errorf("%s has changed, too", other)
				}
			}
		})
	}
}

// TestCommonLabels: every object has them.
func TestCommonLabels(t *testing.T) {
	for _, storage := range []string{"embedded", "etcd"} {
		all, _ := objects(t, "commonLabels: {team: platform}\nserviceMonitor: true\ncertManager: true\nstrictNameReuse: true\nstorage: "+storage)
		for name, object := range all {
			if at(object, "metadata", "labels", "team") != "platform" {
				t.Errorf("%s has the labels %v", name, at(object, "metadata", "labels"))
			}
		}
		if len(all) < 50 {
			t.Errorf("there are %d objects", len(all))
		}
	}
}

// TestMonitorLabels: the objects of the Prometheus operator have them, and no other object.
func TestMonitorLabels(t *testing.T) {
	all, _ := objects(t, "commonLabels: {team: platform}\nserviceMonitor: true\nserviceMonitorLabels: {release: prometheus}")
	labelled := 0
	for name, object := range all {
		is := strings.HasPrefix(at(object, "apiVersion").(string), "monitoring.coreos.com/")
		if (at(object, "metadata", "labels", "release") == "prometheus") != is || at(object, "metadata", "labels", "team") != "platform" {
			t.Errorf("%s has the labels %v", name, at(object, "metadata", "labels"))
		}
		if is {
			labelled++
		}
	}
	if labelled != 4 {
		t.Errorf("%d objects have the labels, want two ServiceMonitors, a PodMonitor and a PrometheusRule", labelled)
	}
}

// TestSchema: the error about a wrong value names it, and what it may be.
func TestSchema(t *testing.T) {
	for values, want := range map[string]string{
		"storage: floppy":                                    "at '/storage': value must be one of 'embedded', 'etcd'",
		"replicas: 2":                                        "additional properties 'replicas' not allowed",
		"image: {repo: x}":                                   "at '/image': additional properties 'repo' not allowed",
		"image: {digest: latest}":                            "at '/image/digest': 'latest' does not match pattern",
		"image: {repository: 'x@sha256:1'}":                  "at '/image/repository': 'x@sha256:1' does not match pattern",
		"image: {pullPolicy: Sometimes}":                     "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		"imagePullSecrets: [registry]":                       "at '/imagePullSecrets/0': got string, want object",
		"certManager: 'yes'":                                 "at '/certManager': got string, want boolean",
		"volume: {storageClassName: A}":                      "at '/volume/storageClassName': 'A' does not match pattern",
		"volume: {size: 5 GB}":                               "at '/volume/size': '5 GB' does not match pattern",
		"etcd: {servers: 'etcd-0:2379'}":                     "at '/etcd/servers': 'etcd-0:2379' does not match pattern",
		"exemptions: {namespace: [shop]}":                    "at '/exemptions': additional properties 'namespace' not allowed",
		"exemptions: {namespaces: shop}":                     "at '/exemptions/namespaces': got string, want array",
		"commonLabels: {team: 'a b'}":                        "at '/commonLabels/team': 'a b' does not match pattern",
		"podLabels: {app.kubernetes.io/name: x}":             "at '/podLabels/app.kubernetes.io~1name': false schema",
		"nodeSelector: {gpu: true}":                          "at '/nodeSelector/gpu': got boolean, want string",
		"tolerations: [{operator: Is}]":                      "at '/tolerations/0/operator': value must be one of",
		"apiserver: {replicas: 0}":                           "at '/apiserver/replicas': minimum: got 0, want 1",
		"apiserver: {replicas: 2}":                           "apiserver.replicas is 2, and storage is embedded: the embedded etcd has one replica; set storage to etcd",
		"controllerManager: {replicas: two}":                 "at '/controllerManager/replicas': got string, want integer",
		"controllerManager: {extraArgs: [stalled-after=1m]}": "at '/controllerManager/extraArgs/0': 'stalled-after=1m' does not match pattern",
		"apiserver: {extraEnv: [{name: GOGC, value: 50}]}":   "at '/apiserver/extraEnv/0/value': got number, want string",
		"controllerManager: {nodeSelector: {}}":              "at '/controllerManager': additional properties 'nodeSelector' not allowed",
		"policyPopulation: {resources: {cpu: 1}}":            "at '/policyPopulation/resources': additional properties 'cpu' not allowed",
		"policyPopulation: {affinity: {nodeAffinty: 1}}":     "at '/policyPopulation/affinity': additional properties 'nodeAffinty' not allowed",
	} {
		if _, err := render(t, "v1.37.2", "nsinit-system", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", values, err, want)
		}
	}
	both := "image: {tag: v9, digest: 'sha256:" + strings.Repeat("0", 64) + "'}"
	if _, err := render(t, "v1.37.2", "nsinit-system", both); err == nil || !strings.Contains(err.Error(), "to use the tag, set image.digest to an empty text") {
		t.Errorf("%s: %v", both, err)
	}
	if _, err := render(t, "v1.37.2", "nsinit-system", "global: {parent: shared}\nenabled: true"); err != nil {
		t.Errorf("as the dependency of another chart: %v", err)
	}
}

// TestSchemaIsComplete: the schema has every value of values.yaml.
func TestSchemaIsComplete(t *testing.T) {
	chart, err := loader.Load(filepath.Join(root, "artifacts", "helm", "nsinit"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := yaml.Unmarshal(chart.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	described := slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))
	got := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(chart.Values)), "enabled", "global")))
	if !slices.Equal(got, described) {
		t.Errorf("values.yaml has %q, and the schema %q", got, described)
	}
}

// TestNotes: the notes say how to check the installation, and what one replica means.
func TestNotes(t *testing.T) {
	_, notes := objects(t, "{}")
	for _, want := range []string{"kubectl nsinit check --wait", "nsinit v0.1.0 is installed in the namespace nsinit-system", "storage=etcd"} {
		if !strings.Contains(notes, want) {
			t.Errorf("there is no %q in\n%s", want, notes)
		}
	}
	if _, notes := objects(t, "storage: etcd"); strings.Contains(notes, "one replica") {
		t.Errorf("with etcd, the notes are\n%s", notes)
	}
}
