/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// TestTemplates: the templates in artifacts are up to date.
func TestTemplates(t *testing.T) {
	templates, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "artifacts", "helm", "nsinit", "templates")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(templates) {
		t.Errorf("there are %d templates, and %d to be written", len(files), len(templates))
	}
	for name, text := range templates {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != text {
			t.Errorf("%s is not what is written, run make generate: %v", name, err)
		}
	}
}

// render renders the chart, as helm template does.
func render(t *testing.T, kubernetes, namespace, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(root, "artifacts", "helm", "nsinit"))
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	capabilities.KubeVersion = *version
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "nsinit", Namespace: namespace}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// TestChart: with the values of a kustomization, the chart contains the same objects.
func TestChart(t *testing.T) {
	for name, test := range map[string]struct {
		values, kubernetes, overlay string
		components                  []string
	}{
		"by default":   {"image: {tag: dev}", "v1.37.2", "embedded", nil},
		"etcd":         {"image: {tag: dev}\nstorage: etcd", "v1.37.2", "ha", nil},
		"cert-manager": {"image: {tag: dev}\ncertManager: true", "v1.37.2", "embedded-cert-manager", nil},
		"both":         {"image: {tag: dev}\nstorage: etcd\ncertManager: true", "v1.37.2", "ha-cert-manager", nil},
		"older":        {"image: {tag: dev}", "v1.35.4", "embedded", []string{"stamp-webhook"}},
		"monitored":    {"image: {tag: dev}\nstorage: etcd\nserviceMonitor: true", "v1.36.0", "ha", []string{"service-monitor"}},
		"objects":      {"image: {tag: dev}\nobjects: true", "v1.37.2", "embedded", []string{"objects"}},
		"everything":   {"image: {tag: dev}\nstorage: etcd\nserviceMonitor: true\ncertManager: true\nstrictNameReuse: true", "v1.34.0", "ha-cert-manager", []string{"stamp-webhook", "service-monitor", "strict-name-reuse"}},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, test.kubernetes, "nsinit-system", test.values)
			if err != nil {
				t.Fatal(err)
			}
			want, err := build(root, test.overlay, test.components...)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for file, text := range rendered {
				object := strings.TrimSuffix(filepath.Base(file), ".yaml")
				if filepath.Ext(file) != ".yaml" || strings.TrimSpace(withoutComments(text)) == "" {
					continue
				}
				found++
				var got map[string]any
				if err := yaml.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				if got, want := canonical(t, got), canonical(t, want[object]); got != want {
					t.Errorf("%s is\n%s\nwant\n%s", object, got, want)
				}
			}
			if found != len(want) {
				t.Errorf("there are %d objects, want %d", found, len(want))
			}
		})
	}
}

// TestValues: values have an effect, and invalid ones are refused.
func TestValues(t *testing.T) {
	rendered, err := render(t, "v1.37.2", "nsinit-system", "image: {repository: registry.example.com/nsinit, tag: v9, pullPolicy: Always}\nvolume: {size: 7Gi}")
	if err != nil {
		t.Fatal(err)
	}
	server := rendered["nsinit/templates/statefulset-nsinit-apiserver.yaml"]
	for _, want := range []string{`image: "registry.example.com/nsinit:v9"`, "imagePullPolicy: Always", "storage: 7Gi"} {
		if !strings.Contains(server, want) {
			t.Errorf("there is no %s in\n%s", want, server)
		}
	}
	if _, err := render(t, "v1.35.4", "nsinit-system", "objects: true"); err == nil || !strings.Contains(err.Error(), "need Kubernetes 1.36") {
		t.Errorf("objects on an older Kubernetes: %v", err)
	}
	// A change of the addresses changes the pods, so they are replaced.
	if rendered, err = render(t, "v1.37.2", "nsinit-system", "storage: etcd\netcd: {servers: 'https://a:2379,https://b:2379'}"); err != nil || !strings.Contains(rendered["nsinit/templates/deployment-nsinit-apiserver.yaml"], `value: "https://a:2379,https://b:2379"`) {
		t.Errorf("%v: %s", err, rendered["nsinit/templates/deployment-nsinit-apiserver.yaml"])
	}
	rendered, err = render(t, "v1.37.2", "nsinit-system", "exemptions: {namespaces: [shop], namePrefixes: [kube-, openshift-], users: ['system:serviceaccount:olm:operator'], onlyGroups: [platform]}")
	if err != nil {
		t.Fatal(err)
	}
	want := "data:\n  namespaces: |\n    default\n    kube-node-lease\n    kube-public\n    kube-system\n    nsinit-system\n    shop\n" +
		"  namePrefixes: |-\n    kube-\n    openshift-\n  onlyGroups: platform\n  users: system:serviceaccount:olm:operator\n"
	if got := rendered["nsinit/templates/configmap-nsinit-exemptions.yaml"]; canonicalData(t, got) != canonicalData(t, want) {
		t.Errorf("the list of exemptions is\n%s\nwant\n%s", got, want)
	}
}

// TestNamespace: in another namespace, even one that looks like a number, the chart has the same objects with that name.
func TestNamespace(t *testing.T) {
	const values = "storage: etcd\nserviceMonitor: true\ncertManager: true\nstrictNameReuse: true\netcd: {servers: 'https://etcd:2379'}"
	for _, namespace := range []string{"platform", "10"} {
		usual, err := render(t, "v1.35.4", "nsinit-system", values)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := render(t, "v1.35.4", namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		differ := 0
		for file, text := range usual {
			if filepath.Ext(file) != ".yaml" {
				continue
			}
			got, want := canonical(t, parsed(t, rendered[file])), canonical(t, moved(parsed(t, text), namespace))
			if got != want {
				t.Errorf("in namespace %s, %s is\n%s\nwant\n%s", namespace, file, got, want)
			}
			if got != canonical(t, parsed(t, text)) {
				differ++
			}
		}
		if differ < 40 {
			t.Errorf("in namespace %s, %d templates differ", namespace, differ)
		}
	}
}

// moved returns a part of an object with another namespace of nsinit in its texts.
func moved(value any, namespace string) any {
	switch v := value.(type) {
	case string:
		return strings.ReplaceAll(v, "nsinit-system", namespace)
	case []any:
		for i := range v {
			v[i] = moved(v[i], namespace)
		}
	case map[string]any:
		for key := range v {
			v[key] = moved(v[key], namespace)
		}
	}
	return value
}

func withoutComments(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// canonicalData returns the data of a ConfigMap in one form.
func canonicalData(t *testing.T, text string) string {
	t.Helper()
	return canonical(t, parsed(t, text)["data"])
}

// parsed returns the object in a rendered template.
func parsed(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return object
}

// canonical returns an object in one form.
func canonical(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPrerelease: the chart is marked as a pre-release while the newest version of the API is alpha or beta.
func TestPrerelease(t *testing.T) {
	versions, err := filepath.Glob(filepath.Join(root, "sdk", "apis", "nsinit", "v[0-9]*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("%d versions: %v", len(versions), err)
	}
	stable := slices.ContainsFunc(versions, func(dir string) bool { return !strings.ContainsAny(filepath.Base(dir)[1:], "ab") })
	metadata, err := os.ReadFile(filepath.Join(root, "artifacts", "helm", "nsinit", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("artifacthub.io/prerelease: \"%v\"\n", !stable); !strings.Contains(string(metadata), want) {
		t.Errorf("the versions of the API are %q: Chart.yaml does not have %s", versions, want)
	}
}
