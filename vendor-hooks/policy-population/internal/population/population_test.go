/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

func namespaceOf(creator string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "u",
		Labels:      map[string]string{"team": "a"},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: creator, v1alpha1.AnnotationCreatedByGroups: "team-a\nsystem:authenticated"},
	}}
}

// TestRenderValue renders the value of one field.
func TestRenderValue(t *testing.T) {
	tests := map[string]struct {
		value   string
		creator string
		want    any
	}{
		"a literal":                       {"plain", "alice", "plain"},
		"an expression":                   {"${creator}", "alice", "alice"},
		"within a text":                   {"for ${creator} in ${namespaceObject.metadata.name}!", "alice", "for alice in shop!"},
		"a label":                         {"${namespaceObject.metadata.labels[\"team\"]}", "alice", "a"},
		"a missing label":                 {"${namespaceObject.metadata.labels[?\"x\"].orValue(\"none\")}", "alice", "none"},
		"a list":                          {"${creatorGroups}", "alice", []any{"team-a", "system:authenticated"}},
		"a whole number":                  {"${size(creatorGroups)}", "alice", int64(2)},
		"a number within a text":          {"${size(creatorGroups)} groups", "alice", "2 groups"},
		"braces within an expression":     {"${{\"a\": \"}\"}[\"a\"]}", "alice", "}"},
		"an escaped expression":           {"$${creator}", "alice", "${creator}"},
		"strings functions":               {"${creator.split(\"@\")[0]}", "alice@corp.com", "alice"},
		"a creator that is an expression": {"${creator}", "${namespaceObject.metadata.name}", "${namespaceObject.metadata.name}"},
		"a creator that breaks lines":     {"x: ${creator}", "a\nkind: Secret\n---", "x: a\nkind: Secret\n---"},
		"a creator with quotes":           {"${creator}", "\"'}${", "\"'}${"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			document, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}, "data": map[string]any{"value": test.value}})
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := Load(document)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := manifests.Render(namespaceOf(test.creator))
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) != 1 || objects[0].GetNamespace() != "shop" || objects[0].GetKind() != "ConfigMap" {
				t.Fatalf("rendered %v", objects)
			}
			if diff := cmp.Diff(test.want, objects[0].Object["data"].(map[string]any)["value"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	const good = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"
	tests := map[string]struct{ file, want string }{
		"nothing":             {"# only a comment", "there is no manifest"},
		"no kind":             {good + "\n---\n{apiVersion: v1, metadata: {name: x}}", "document 2: kind is missing"},
		"no name":             {"{apiVersion: v1, kind: ConfigMap}", "document 1: metadata.name is missing"},
		"a namespace":         {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: kube-system}}", "metadata.namespace is \"kube-system\": leave it out"},
		"not YAML":            {"{", "document 1"},
		"a field twice":       {"apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: x}", "document 1"},
		"a broken expression": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: '${creator +}'}}", "document 1: .data.a: expression \"creator +\""},
		"an unknown variable": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: '${nobody}'}}", "undeclared reference to 'nobody'"},
		"no end":              {"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: '${creator'}}", "the expression has no end"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]byte(test.file))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}

func TestRenderErrors(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"a key that is not there": {"${namespaceObject.metadata.labels[\"x\"]}", "document 1: .data.a: expression \"namespaceObject.metadata.labels[\\\"x\\\"]\": no such key: x"},
		"a list within a text":    {"x ${creatorGroups}", "let it yield a string"},
		"too costly":              {"${[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, true)))))}", "cost limit"},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}, "data": map[string]any{"a": test.value}})
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := Load(document)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := manifests.Render(namespaceOf("alice")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
		})
	}
}

// mapper knows the kinds of the test.
func mapper() meta.ResettableRESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	return resettable{m}
}

type resettable struct{ meta.RESTMapper }

func (resettable) Reset() {}

// TestApply applies to a server that records what it is sent.
func TestApply(t *testing.T) {
	tests := map[string]struct {
		kind, creator string
		answer        int
		want          []string
		err           string
	}{
		"applied":           {"ConfigMap", "alice", http.StatusOK, []string{"PATCH /api/v1/namespaces/shop/configmaps/x?fieldManager=hook&force=true application/apply-patch+yaml"}, ""},
		"forbidden":         {"ConfigMap", "alice", http.StatusForbidden, []string{"PATCH /api/v1/namespaces/shop/configmaps/x?fieldManager=hook&force=true application/apply-patch+yaml"}, "cannot apply ConfigMap \"x\" (1 of 1): grant the service account"},
		"cluster-scoped":    {"Node", "alice", http.StatusOK, nil, "nodes is not namespaced: remove it"},
		"an unknown kind":   {"Nothing", "alice", http.StatusOK, nil, "the cluster does not know the kind"},
		"nobody created it": {"ConfigMap", "", http.StatusOK, nil, "its creator is unknown"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type"))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.answer)
				_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`))
			}))
			defer server.Close()
			client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := Load([]byte("{apiVersion: v1, kind: " + test.kind + ", metadata: {name: x}}"))
			if err != nil {
				t.Fatal(err)
			}
			p := Populator{Manifests: manifests, Client: client, Mapper: mapper(), FieldManager: "hook"}
			err = p.Initialize(context.Background(), namespaceOf(test.creator))
			if err == nil {
				err = errors.New("")
			}
			if test.err == "" && err.Error() != "" || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want it to say %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultManifests loads and renders the file that is shipped.
func TestDefaultManifests(t *testing.T) {
	manifests, err := LoadFile("../../manifests/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Render(namespaceOf("alice"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	if diff := cmp.Diff([]string{"RoleBinding", "ResourceQuota", "LimitRange", "NetworkPolicy"}, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	subject := objects[0].Object["subjects"].([]any)[0].(map[string]any)
	if subject["name"] != "alice" {
		t.Errorf("the RoleBinding is for %v", subject["name"])
	}
}

// FuzzCompile: no text makes the reader of expressions fail otherwise than with an error,
// and a text without expressions stays as it is.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"", "plain", "${creator}", "$${", "${", "${\"}\"}", "a${creator}b${1}", "$$${creator}"} {
		f.Add(seed)
	}
	environment, err := newEnvironment()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		compiled, err := compile(environment, source)
		if err != nil {
			return
		}
		rendered, err := compiled.render(parameters(namespaceOf("alice")))
		if err == nil && !strings.Contains(source, "${") && rendered != source {
			t.Errorf("%q became %q", source, rendered)
		}
	})
}
