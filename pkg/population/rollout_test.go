/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// compile returns the version of a population that a rollout gets from its watch.
func compile(t *testing.T, p *population.Populator, stored *v1alpha1.NamespacePopulation) *population.Population {
	t.Helper()
	compiled, err := p.Compile(stored.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// TestRollOut: a namespace that exists gets the objects that it does not have, and the inventory records each outcome. An
// object is in the inventory before it is applied.
func TestRollOut(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	named := func(name string) string { return strings.Replace(configMapA, `"a"`, `"`+name+`"`, 1) }
	stored := populate(t, client, named("free"), named("taken"), named("rejected"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${namespaceObject.metadata.labels[\"x\"]}"}}`)
	compiled := compile(t, p, stored)
	taken := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "taken", "uid": "other"}}
	core.objects["/api/v1/namespaces/shop/configmaps/taken"] = taken
	core.applying = func(path string) bool {
		inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(inventory.Status.Objects, func(o v1alpha1.PopulatedObject) bool { return strings.HasSuffix(path, "/"+o.Name) }) {
			t.Errorf("%s is applied, and the inventory is %+v, %v", path, inventory, err)
		}
		return !strings.HasSuffix(path, "/rejected")
	}
	core.time = "2026-01-02T03:04:05Z"
	var wrote []string
	p.Wrote = func(_ string, stored metav1.Object) { wrote = append(wrote, stored.GetName()) }
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
	check("m0 created false", "m1 conflict true", "m2 refused true", "m3 refused true")
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
	check("m0 unchanged false", "m1 created false", "m2 created false", "m3 refused true")
	if diff := cmp.Diff([]string{"free", "shop", "taken", "rejected", "shop"}, wrote); diff != "" { // with the inventory
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// TestRollOutLater: the object of a later population counts while that population has the manifest. The label alone and an
// entry that outlived its population do not.
func TestRollOutLater(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	compiled := compile(t, p, stored)
	entry := v1alpha1.PopulatedObject{Population: "q", Manifest: "m0", APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "of-q", PrunePolicy: v1alpha1.PruneDelete, State: v1alpha1.PopulatedObjectApplied}
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

// TestRollOutLate: a version that has been replaced, which the watch still shows, is not applied.
func TestRollOutLate(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	compiled := compile(t, p, stored)
	stored.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "more"}}
	if _, err := client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); !population.IsTemporary(err) {
		t.Errorf("%+v, %v", results, err)
	}
	if core.objects["/api/v1/namespaces/shop/configmaps/a"] != nil {
		t.Error("the former version was applied")
	}
}

// TestRollOutTemporary: an error of the API server is no outcome. The inventory says that the object is to be applied.
func TestRollOutTemporary(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	compiled := compile(t, p, stored)
	core.unavailable = true
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); !population.IsTemporary(err) {
		t.Errorf("%+v, %v", results, err)
	}
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || len(inventory.Status.Objects) != 1 || inventory.Status.Objects[0].State != v1alpha1.PopulatedObjectPending || inventory.Status.Objects[0].Message == "" {
		t.Errorf("%+v, %v", inventory, err)
	}
	core.unavailable = false
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); err != nil || len(results) != 1 || results[0].Outcome != population.Created {
		t.Errorf("%+v, %v", results, err)
	}
	core.unavailable = true
	if err := p.Populate(t.Context(), namespaceWith("u"), population.Initialize); !population.IsTemporary(err) || !strings.Contains(err.Error(), "p/m0: cannot apply") {
		t.Errorf("an initialization: %v", err)
	}
}

// TestRollOutChanges: a rollout brings changes of manifests whose drift is repaired, and deletes the objects of removed ones. The
// repair of drift brings neither.
func TestRollOutChanges(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA, strings.Replace(configMapA, `"a"`, `"b"`, 1))
	update := func(change func(*v1alpha1.NamespacePopulationSpec)) *population.Population {
		t.Helper()
		change(&stored.Spec)
		var err error
		if stored, err = client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return compile(t, p, stored)
	}
	check := func(do func() error, want string) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		var names []string
		for path, object := range core.objects {
			data, _, _ := unstructured.NestedString(object, "data", "is")
			names = append(names, path[strings.LastIndex(path, "/")+1:]+"="+data)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var wrote []string
	p.Wrote = func(_ string, stored metav1.Object) { wrote = append(wrote, stored.GetName()) }
	p.Populated = func(*v1alpha1.PopulatedNamespace) { t.Error("an open namespace was initialized") }
	repair := func() error { return p.Populate(t.Context(), namespaceWith("u"), population.Repair) }
	var of *population.Population
	results := ""
	rollOut := func() error {
		all, err := p.RollOut(t.Context(), namespaceWith("u"), of)
		results = ""
		for _, r := range all {
			results += fmt.Sprintf("%s %s %s;", r.Manifest, r.Outcome, r.Deletes.Name)
		}
		return err
	}
	of = update(func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Scope, spec.Rollout, spec.Manifests[0].DriftPolicy = v1alpha1.ScopeAll, v1alpha1.RolloutApply, v1alpha1.DriftRepair
	})
	check(rollOut, "a= b=")
	delete(core.objects, "/api/v1/namespaces/shop/configmaps/a")
	for _, core.time = range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"} { // of the last change
		wrote = nil
		check(repair, "a= b=")
		check(repair, "a= b=") // changes nothing
		if diff := cmp.Diff([]string{"a", "shop"}, wrote); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	}

	of = update(func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests = spec.Manifests[:1]
		spec.Manifests[0].Template.Raw = []byte(strings.Replace(configMapA, `"a"}`, `"a"},"data":{"is":"new"}`, 1))
	})
	check(repair, "a= b=")
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if report, err := p.ReportRollOut(t.Context(), namespaceWith("u"), of, inventory.Status.Objects); err != nil || len(report) != 2 || report[0].Outcome != population.Configured || report[1].Outcome != population.Deleted || report[1].Deletes.Name != "b" {
		t.Errorf("%+v, %v", report, err)
	}
	check(rollOut, "a=new")
	if results != "m0 configured ;m1 deleted b;" {
		t.Error(results)
	}
	delete(core.objects, "/api/v1/namespaces/shop/configmaps/a")
	check(repair, "a=new")

	// An object stays until the one that replaces it is applied.
	of = update(func(spec *v1alpha1.NamespacePopulationSpec) {
		spec.Manifests[0].Template.Raw = []byte(strings.Replace(configMapA, `"a"`, `"c"`, 1))
	})
	core.applying = func(path string) bool { return !strings.HasSuffix(path, "/c") }
	check(rollOut, "a=new")
	if results != "m0 refused ;m0 unchanged a;" {
		t.Error(results)
	}
	core.applying = func(string) bool { return true }
	check(rollOut, "c=")
}

// TestRollOutFrozen: a namespace that is frozen during a rollout gets no other object. What was applied is in the inventory.
func TestRollOutFrozen(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA, strings.Replace(configMapA, `"a"`, `"b"`, 1))
	compiled := compile(t, p, stored)
	p.Pace = flowcontrol.NewFakeAlwaysRateLimiter()
	metadata := map[string]any{"name": "shop", "uid": "u"}
	core.objects["/api/v1/namespaces/shop"] = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
	core.applying = func(string) bool {
		core.mu.Lock()
		defer core.mu.Unlock()
		metadata["labels"] = map[string]any{v1alpha1.LabelFrozen: "true"}
		return true
	}
	if results, err := p.RollOut(t.Context(), namespaceWith("u"), compiled); !errors.Is(err, population.ErrChanged) {
		t.Errorf("%+v, %v", results, err)
	}
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || len(inventory.Status.Objects) != 2 || inventory.Status.Objects[0].UID == "" || inventory.Status.Objects[1].UID != "" || len(core.objects) != 2 {
		t.Errorf("%+v, %v, there are %v", inventory, err, core.objects)
	}
}
