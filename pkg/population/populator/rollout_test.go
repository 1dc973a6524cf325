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
