/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// configurations generates configurations with different names, in any order. Names of
// initializers come more than once.
func configurations() *rapid.Generator[[]v1alpha1.NamespaceInitializerConfiguration] {
	initializer := rapid.Custom(func(t *rapid.T) v1alpha1.RegisteredInitializer {
		i := v1alpha1.RegisteredInitializer{
			Name:      rapid.SampledFrom([]string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"}).Draw(t, "initializer"),
			Finalizer: rapid.IntRange(0, 3).Draw(t, "finalizer") == 3,
		}
		if rapid.Bool().Draw(t, "has a deadline") {
			i.FailurePolicy = new(rapid.SampledFrom([]v1alpha1.FailurePolicyType{v1alpha1.Ignore, v1alpha1.Fail}).Draw(t, "failurePolicy"))
			i.TimeoutSeconds = new(rapid.Int32Range(1, 9).Draw(t, "timeoutSeconds"))
		}
		return i
	})
	configuration := rapid.Custom(func(t *rapid.T) v1alpha1.NamespaceInitializerConfiguration {
		c := registered(rapid.StringMatching("[0-9]{1,2}|[a-c]").Draw(t, "name"), rapid.SliceOfN(initializer, 0, 4).Draw(t, "initializers")...)
		if rapid.IntRange(0, 3).Draw(t, "deleted") == 3 {
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return c
	})
	return rapid.SliceOfNDistinct(configuration, 0, 5, func(c v1alpha1.NamespaceInitializerConfiguration) string { return c.Name })
}

// TestPlanProperties: a plan has each registered initializer once, as its first registration
// says, in the order of the names of the configurations, whatever order they are given in.
func TestPlanProperties(t *testing.T) { rapid.Check(t, planProperties) }

func FuzzPlan(f *testing.F) { f.Fuzz(rapid.MakeFuzz(planProperties)) }

func planProperties(t *rapid.T) {
	given := configurations().Draw(t, "configurations")
	untouched := make([]v1alpha1.NamespaceInitializerConfiguration, 0, len(given))
	for _, c := range given {
		untouched = append(untouched, *c.DeepCopy())
	}
	merger, namespace := NewMerger(), &corev1.Namespace{}
	plan := merger.Merge(given, namespace).Entries
	if diff := gocmp.Diff(untouched, given); diff != "" && len(given) > 0 {
		t.Fatalf("Plan changed what it was given (-before +after):\n%s", diff)
	}
	if diff := gocmp.Diff(plan, merger.Merge(rapid.Permutation(given).Draw(t, "another order"), namespace).Entries); diff != "" {
		t.Fatalf("the order of the list matters (-one +other):\n%s", diff)
	}
	if participants := slices.ContainsFunc(plan, func(p v1alpha1.PlannedInitializer) bool { return p.Finalizer }); participants {
		if plan[0].Name != v1alpha1.InitializerLifecycle {
			t.Fatalf("the built-in initializer does not come first: %v", plan)
		}
		plan = plan[1:]
	}
	checkEntries(t, given, plan)
}

// registration is where an initializer is registered.
type registration struct {
	configuration *v1alpha1.NamespaceInitializerConfiguration
	index         int
}

// checkEntries compares a plan without the built-in initializer to the registrations.
func checkEntries(t *rapid.T, given []v1alpha1.NamespaceInitializerConfiguration, plan []v1alpha1.PlannedInitializer) {
	first := map[string]registration{}
	for i := range given {
		c := &given[i]
		for j, entry := range c.Initializers {
			known, found := first[entry.Name]
			if c.DeletionTimestamp == nil && (!found || c.Name < known.configuration.Name) {
				first[entry.Name] = registration{c, j}
			}
		}
	}
	var order []registration
	for _, entry := range plan {
		r, found := first[entry.Name]
		if !found {
			t.Fatalf("%q is planned, and not registered, or planned twice", entry.Name)
		}
		delete(first, entry.Name)
		order = append(order, r)
		want := v1alpha1.PlannedInitializer{
			RegisteredInitializer: r.configuration.Initializers[r.index],
			Configuration:         &v1alpha1.ConfigurationReference{Name: r.configuration.Name, UID: r.configuration.UID},
		}
		if diff := gocmp.Diff(want, entry); diff != "" {
			t.Fatalf("%q is not planned as registered (-registered +planned):\n%s", entry.Name, diff)
		}
	}
	if len(first) > 0 {
		t.Fatalf("these are registered, and not planned: %v", first)
	}
	if !slices.IsSortedFunc(order, func(a, b registration) int {
		return cmp.Or(cmp.Compare(a.configuration.Name, b.configuration.Name), cmp.Compare(a.index, b.index))
	}) {
		t.Fatalf("the order is another: %v", plan)
	}
}

// TestFailuresRemoveNothing: whatever the expressions that fail would yield, each initializer of the plan that they would give
// is in the plan, and waits and takes part at least as much.
func TestFailuresRemoveNothing(t *testing.T) { rapid.Check(t, failuresRemoveNothing) }

func FuzzFailures(f *testing.F) { f.Fuzz(rapid.MakeFuzz(failuresRemoveNothing)) }

func failuresRemoveNothing(t *rapid.T) {
	merger, namespace := NewMerger(), &corev1.Namespace{}
	given := configurations().Draw(t, "configurations")
	resolved := make([]v1alpha1.NamespaceInitializerConfiguration, 0, len(given))
	for i := range given {
		other := given[i].DeepCopy()
		for j := range given[i].Initializers {
			conditions := []v1alpha1.MatchCondition{{Name: "c", Expression: rapid.SampledFrom([]string{"true", "false", `namespaceObject.metadata.labels["x"] == ""`}).Draw(t, "expression")}}
			given[i].Initializers[j].MatchConditions = conditions
			if conditions[0].Expression != "true" && conditions[0].Expression != "false" {
				conditions = []v1alpha1.MatchCondition{{Name: "c", Expression: rapid.SampledFrom([]string{"true", "false"}).Draw(t, "it would yield")}}
			}
			other.Initializers[j].MatchConditions = conditions
		}
		resolved = append(resolved, *other)
	}
	entries := merger.Merge(given, namespace).Entries
	for _, want := range merger.Merge(resolved, namespace).Entries {
		i := slices.IndexFunc(entries, func(p v1alpha1.PlannedInitializer) bool { return p.Name == want.Name })
		if i < 0 || want.Finalizer && !entries[i].Finalizer || patience(&want.RegisteredInitializer) > patience(&entries[i].RegisteredInitializer) {
			t.Fatalf("without failures, the plan has %+v, and with them it is %+v", want, entries)
		}
	}
}
