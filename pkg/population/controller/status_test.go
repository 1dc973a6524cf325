/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func TestAppliedTo(t *testing.T) {
	p := &v1alpha1.NamespacePopulation{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3},
		Spec:       v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}},
		Status:     v1alpha1.NamespacePopulationStatus{Rollout: &v1alpha1.PopulationRolloutStatus{Current: 7}}, // of another controller
	}
	inventory := func(name string, objects ...v1alpha1.PopulatedObject) *v1alpha1.PopulatedNamespace {
		return &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.PopulatedNamespaceStatus{Objects: objects}}
	}
	entry := func(population, manifest string, state v1alpha1.PopulatedObjectState, message string) v1alpha1.PopulatedObject {
		return v1alpha1.PopulatedObject{Population: population, Manifest: manifest, State: state, Message: message}
	}
	const applied, failed, pending = v1alpha1.PopulatedObjectApplied, v1alpha1.PopulatedObjectFailed, v1alpha1.PopulatedObjectPending
	inventories := []*v1alpha1.PopulatedNamespace{
		inventory("z", entry("p", "a", applied, ""), entry("p", "b", failed, "of z")),
		inventory("y", entry("p", "a", applied, ""), entry("p", "b", failed, "of y"), entry("other", "a", failed, "of another")),
		inventory("x", entry("p", "gone", applied, ""), entry("other", "a", applied, "")),
		inventory("w", entry("p", "c", pending, "")),
		inventory("v", entry("p", "d", v1alpha1.PopulatedObjectConflict, "of another client")),
	}
	want := v1alpha1.NamespacePopulationStatus{
		Namespaces: 4,
		Rollout:    &v1alpha1.PopulationRolloutStatus{Current: 7},
		Manifests:  []v1alpha1.PopulationManifestStatus{{Name: "a", Applied: 2}, {Name: "b", Failed: 2, Namespace: "y", Message: "of y"}, {Name: "c"}, {Name: "d", Failed: 1, Namespace: "v", Message: "of another client"}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: "ManifestFailed", ObservedGeneration: 3,
			Message: "manifest b, in 2 namespaces, of which y: of y"}},
	}
	ignoreTime := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
	if diff := cmp.Diff(want, appliedTo(p, inventories), ignoreTime); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := appliedTo(p, inventories[:0]).Conditions[0]; got.Status != metav1.ConditionTrue {
		t.Errorf("without namespaces: %+v", got)
	}
	conflict := inventory("u", entry("p", "a", v1alpha1.PopulatedObjectConflict, "of another client"))
	for reason, inventories := range map[string][]*v1alpha1.PopulatedNamespace{
		"ManifestConflict": {conflict},
		"ManifestFailed":   {conflict, inventory("t", entry("p", "c", failed, "of t"))}, // also if another manifest is in conflict
	} {
		if got := appliedTo(p, inventories).Conditions[0]; got.Status != metav1.ConditionFalse || got.Reason != reason {
			t.Errorf("want the reason %s: %+v", reason, got)
		}
	}
}

// TestObservedGeneration: the status of a population describes the generation that each of its conditions describes.
func TestObservedGeneration(t *testing.T) {
	condition := func(kind string, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, ObservedGeneration: generation}
	}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		want       int64
	}{
		"none":            {nil, 0},
		"only Ready":      {[]metav1.Condition{condition("Ready", 2)}, 2},
		"only Applied":    {[]metav1.Condition{condition("Applied", 2)}, 0},
		"Ready is late":   {[]metav1.Condition{condition("Applied", 3), condition("Ready", 2)}, 2},
		"Applied is late": {[]metav1.Condition{condition("Applied", 2), condition("Ready", 3)}, 2},
		"both":            {[]metav1.Condition{condition("Applied", 3), condition("Ready", 3), condition("Other", 1)}, 3},
	} {
		if got := observedGeneration(test.conditions); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestFormerReport: what was reported of a former population of the same name is not in the status of the new one.
func TestFormerReport(t *testing.T) {
	p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "new"}, Spec: v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll}}
	for uid, want := range map[types.UID]int{"new": 2, "former": 0} {
		var status v1alpha1.NamespacePopulationStatus
		report{uid: uid, ready: &metav1.Condition{Type: v1alpha1.ConditionReady}, rolledOut: &metav1.Condition{Type: v1alpha1.ConditionRolledOut}}.addTo(p, &status)
		if len(status.Conditions) != want {
			t.Errorf("of %s: %+v", uid, status.Conditions)
		}
	}
}
