/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/fake"
)

// TestUpdateStatus: a writer whose cache is behind keeps what another one wrote, and writes nothing to another population of the name.
func TestUpdateStatus(t *testing.T) {
	stored := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: 2},
		Status: v1alpha1.NamespacePopulationStatus{Rollout: &v1alpha1.PopulationRolloutStatus{Current: 7}}}
	nsinit := nsinitfake.NewClientset(stored)
	conflicts := 0
	nsinit.PrependReactor("update", "namespacepopulations", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts++
		return conflicts == 1, nil, apierrors.NewConflict(v1alpha1.Resource("namespacepopulations"), "p", nil)
	})
	ready := func(status *v1alpha1.NamespacePopulationStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: 2})
	}
	behind, former := stored.DeepCopy(), stored.DeepCopy()
	behind.Status.Rollout, former.UID = nil, "former"
	for _, cached := range []*v1alpha1.NamespacePopulation{behind, former} {
		if err := UpdateStatus(t.Context(), nsinit, cached, ready); err != nil {
			t.Fatal(err)
		}
		ready = func(status *v1alpha1.NamespacePopulationStatus) { status.Rollout = nil }
		conflicts = 0
	}
	live, err := nsinit.NsinitV1alpha1().NamespacePopulations().Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || live.Status.Rollout == nil || live.Status.Rollout.Current != 7 || live.Status.ObservedGeneration != 2 || len(live.Status.Conditions) != 1 {
		t.Errorf("the status is %+v, %v", live.Status, err)
	}
}

// TestCompiler: each version of a population is compiled once, until the population is forgotten.
func TestCompiler(t *testing.T) {
	var c Compiler
	compile := func(uid string, generation int64) *Population {
		p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(uid), Generation: generation}}
		compiled, err := c.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	first := compile("u", 1)
	if compile("u", 1) != first || compile("v", 1) == first || compile("u", 2) == first {
		t.Error("a version was compiled twice, or another one was not")
	}
	second := compile("v", 1)
	c.Retain([]v1alpha1.NamespacePopulation{{ObjectMeta: metav1.ObjectMeta{UID: "v"}}})
	if compile("v", 1) != second || len(c.known) != 1 {
		t.Errorf("%d populations are known", len(c.known))
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
