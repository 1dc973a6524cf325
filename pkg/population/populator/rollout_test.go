/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
)

// TestRollOut: a namespace that exists gets the objects that it does not have, and the inventory records each outcome. An
// object is in the inventory before it is applied.
func TestRollOut(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	named := func(name string) string { return strings.Replace(configMapA, `"a"`, `"`+name+`"`, 1) }
	stored := populate(t, client, named("free"), named("taken"), named("rejected"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${namespaceObject.metadata.labels[\"x\"]}"}}`)
	compiled, errs := population.Compile(stored.Name, &stored.Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	taken := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "taken", "uid": "other"}}
	core.objects["/api/v1/namespaces/shop/configmaps/taken"] = taken
	core.applying = func(path string) bool {
		inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(inventory.Status.Objects, func(o v1alpha1.PopulatedObject) bool { return strings.HasSuffix(path, "/"+o.Name) }) {
			t.Errorf("%s is applied, and the inventory is %+v, %v", path, inventory, err)
		}
		return !strings.HasSuffix(path, "/rejected")
	}
	check := func(want ...string) {
		t.Helper()
		results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range results {
			got = append(got, fmt.Sprintf("%s %s %t", r.Manifest, r.Outcome, r.Message != ""))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check("m0 unchanged false", "m1 conflict true", "m2 refused true", "m3 refused true")
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, o := range inventory.Status.Objects {
		states = append(states, fmt.Sprintf("%s %s %s %s", o.Manifest, o.Name, o.UID, o.State))
	}
	if diff := cmp.Diff([]string{"m0 free uid-/api/v1/namespaces/shop/configmaps/free Applied", "m1 taken  Conflict", "m2 rejected  Failed", "m3   Failed"}, states); diff != "" {
		t.Errorf("the inventory (-want +got):\n%s", diff)
	}
	if core.objects["/api/v1/namespaces/shop/configmaps/taken"]["metadata"].(map[string]any)["uid"] != "other" {
		t.Error("the object of another client was applied")
	}

	// The conflict and the rejection end. What was applied is not applied again.
	delete(core.objects, "/api/v1/namespaces/shop/configmaps/taken")
	core.applying = func(path string) bool {
		if strings.HasSuffix(path, "/free") {
			t.Error("it was applied again")
		}
		return true
	}
	check("m0 unchanged false", "m1 unchanged false", "m2 unchanged false", "m3 refused true")
}

// TestRollOutLater: the object of a later population counts while that population has the manifest. The label alone and an
// entry that outlived its population do not.
func TestRollOutLater(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	compiled, errs := population.Compile(stored.Name, &stored.Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	entry := entryAs("m0", "a", func(o *v1alpha1.PopulatedObject) { o.Population, o.UID = "q", "of-q" })
	if _, err := client.PopulatedNamespaces().Create(t.Context(), &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"},
		Status: v1alpha1.PopulatedNamespaceStatus{Objects: []v1alpha1.PopulatedObject{entry}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/shop/configmaps/a"
	core.objects[path] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "uid": "of-q", "resourceVersion": "1",
		"labels":        map[string]any{v1alpha1.LabelPopulation: "q"},
		"managedFields": []any{map[string]any{"manager": "hook", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}}}}
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); err != nil || len(results) != 1 || results[0].Outcome != population.Unchanged {
		t.Fatalf("%+v, %v", results, err)
	}
	if got := core.objects[path]["metadata"].(map[string]any)["uid"]; got == "of-q" {
		t.Error("the content of a population that does not exist stayed")
	}
}

// TestRollOutTemporary: an error of the API server is no outcome. The inventory says that the object is to be applied.
func TestRollOutTemporary(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	compiled, errs := population.Compile(stored.Name, &stored.Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	core.unavailable = true
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); !population.IsTemporary(err) {
		t.Errorf("%+v, %v", results, err)
	}
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || len(inventory.Status.Objects) != 1 || inventory.Status.Objects[0].State != v1alpha1.PopulatedObjectPending || inventory.Status.Objects[0].Message == "" {
		t.Errorf("%+v, %v", inventory, err)
	}
	core.unavailable = false
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); err != nil || len(results) != 1 || results[0].Outcome != population.Unchanged {
		t.Errorf("%+v, %v", results, err)
	}
}
