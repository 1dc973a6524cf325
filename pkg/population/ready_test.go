/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestReadyWhen: a new namespace waits until its objects are ready. One call waits for a moment, and later ones only look.
func TestReadyWhen(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/shop/configmaps/a"
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	stored.Spec.Manifests[0].ReadyWhen, stored.Spec.Manifests[0].DriftPolicy = `object.status.phase == "Ready" && namespaceObject.metadata.name == "shop"`, v1alpha1.DriftRepair
	if _, err := client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	reads := 0
	core.reading = func(of string) {
		if of == path {
			reads++
		}
	}
	check := func(name string, err error, says string, applied, ready metav1.ConditionStatus) {
		t.Helper()
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", name, err, says)
		}
		inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a, r := meta.FindStatusCondition(inventory.Status.Conditions, v1alpha1.ConditionApplied), meta.FindStatusCondition(inventory.Status.Conditions, v1alpha1.ConditionReady)
		if a.Status != applied || r.Status != ready || ready == metav1.ConditionFalse && (r.Reason != population.ReasonNotReady || !strings.Contains(r.Message, says)) {
			t.Errorf("%s: the conditions are %+v and %+v", name, a, r)
		}
	}
	check("without a status", p.Initialize(t.Context(), namespaceWith("u")), `p/m0: ConfigMap "a" is not ready: readyWhen: expression`, metav1.ConditionTrue, metav1.ConditionFalse)
	if reads != 4 {
		t.Errorf("the first call read the object %d times", reads)
	}
	core.objects[path]["status"] = map[string]any{"phase": "Pending"}
	check("not yet", p.Initialize(t.Context(), namespaceWith("u")), "yields false", metav1.ConditionTrue, metav1.ConditionFalse)
	core.stores("v")
	check("the next namespace", p.Initialize(t.Context(), namespaceWith("v")), "yields false", metav1.ConditionTrue, metav1.ConditionFalse)
	if reads != 4 {
		t.Errorf("later calls read the object %d times", reads-4)
	}
	core.objects[path]["status"] = map[string]any{"phase": "Ready"}
	check("ready", p.Initialize(t.Context(), namespaceWith("v")), "", metav1.ConditionTrue, metav1.ConditionTrue)

	core.objects[path]["status"] = map[string]any{"phase": "Pending"}
	core.reading = func(path string) {
		if reads++; reads == 6 {
			core.objects[path]["status"] = map[string]any{"phase": "Ready"}
		}
	}
	core.stores("w")
	check("ready at the second read", p.Initialize(t.Context(), namespaceWith("w")), "", metav1.ConditionTrue, metav1.ConditionTrue)

	core.objects[path]["status"] = map[string]any{"phase": "Pending"}
	check("a repair does not wait", p.Populate(t.Context(), namespaceWith("w"), population.Repair), "", metav1.ConditionTrue, metav1.ConditionTrue)
}

// TestReadyDeleted: an object that is being deleted is not ready, whatever it is.
func TestReadyDeleted(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	populate(t, client, configMapA)
	core.deleted = true
	if err := p.Initialize(t.Context(), namespaceWith("u")); err == nil || !strings.Contains(err.Error(), `p/m0: ConfigMap "a" is not ready: it is being deleted`) {
		t.Errorf("it is being deleted: %v", err)
	}
	core.deleted = false
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Error(err)
	}
}

// TestReadyLast: of two populations with one object, the later one counts.
func TestReadyLast(t *testing.T) {
	t.Parallel()
	p, _, client := setUp(t)
	stored := populate(t, client, configMapA)
	later := stored.DeepCopy()
	later.Name, later.ResourceVersion = "q", ""
	if _, err := client.NamespacePopulations().Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored.Spec.Manifests[0].ReadyWhen = "false"
	if _, err := client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Error(err)
	}
}

// TestUncounted: kube-apiserver enforces an entry of a quota when the status has it.
func TestUncounted(t *testing.T) {
	list := func(pods string, more ...corev1.ResourceName) corev1.ResourceList {
		all := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
		for _, name := range more {
			all[name] = resource.MustParse("1")
		}
		return all
	}
	for name, test := range map[string]struct {
		status corev1.ResourceQuotaStatus
		want   []string
	}{
		"no status":      {corev1.ResourceQuotaStatus{}, []string{"cpu", "pods"}},
		"all":            {corev1.ResourceQuotaStatus{Hard: list("2000m", "cpu"), Used: list("0", "cpu")}, nil},
		"one is missing": {corev1.ResourceQuotaStatus{Hard: list("2"), Used: list("0", "cpu")}, []string{"cpu"}},
		"not counted":    {corev1.ResourceQuotaStatus{Hard: list("2", "cpu"), Used: list("0")}, []string{"cpu"}},
		"a former value": {corev1.ResourceQuotaStatus{Hard: list("3", "cpu"), Used: list("0", "cpu")}, []string{"pods"}},
	} {
		quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list("2", "cpu")}, Status: test.status}
		if got := population.Uncounted(quota); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v of %v", name, got, slices.Sorted(maps.Keys(quota.Spec.Hard)))
		}
	}
}
