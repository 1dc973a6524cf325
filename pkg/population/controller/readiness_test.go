/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// TestReportReadiness: the status reports whether a population could be applied, and is checked again.
func TestReportReadiness(t *testing.T) {
	stored := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 2}}
	nsinit := nsinitfake.NewClientset(stored)
	status := metav1.ConditionFalse
	retried := 0
	check := func(_ context.Context, p *v1alpha1.NamespacePopulation) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: "R", ObservedGeneration: p.Generation}
	}
	populator := &fakePopulator{readiness: check}
	c, err := New(Config{Nsinit: nsinit, Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Populator: populator, Exemptions: noExemptions{}, Retry: func() { retried++ }})
	if err != nil {
		t.Fatal(err)
	}
	store := c.informers.Nsinit().V1alpha1().NamespacePopulations().Informer().GetStore()
	if err := store.Add(stored); err != nil {
		t.Fatal(err)
	}
	for _, status = range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue} {
		for _, report := range []func(context.Context, string) error{c.checkReadiness, c.writeStatus} {
			if err := report(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			if stored, err = nsinit.NsinitV1alpha1().NamespacePopulations().Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := store.Update(stored); err != nil {
				t.Fatal(err)
			}
		}
		ready := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != status || ready.ObservedGeneration != 2 || meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionApplied) == nil {
			t.Errorf("the conditions are %+v", stored.Status.Conditions)
		}
	}
	if retried != 1 {
		t.Errorf("namespaces were retried %d times, want once: when it could be applied again", retried)
	}

	// A population that was deleted is not checked again.
	if err := store.Delete(stored); err != nil {
		t.Fatal(err)
	}
	checked := false
	populator.readiness = func(context.Context, *v1alpha1.NamespacePopulation) metav1.Condition {
		checked = true
		return metav1.Condition{}
	}
	if err := c.checkReadiness(t.Context(), "p"); err != nil || checked {
		t.Errorf("a deleted population: checked %t, error %v", checked, err)
	}
}

// TestConflictStays: an object in conflict causes one early check, and not one each time the status is written.
func TestConflictStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{{Name: "m"}}}}
		nsinit := nsinitfake.NewClientset(stored)
		c, err := New(Config{Nsinit: nsinit, Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Populator: &fakePopulator{}, Exemptions: noExemptions{}, Retry: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		informers := c.informers.Nsinit().V1alpha1()
		populations := informers.NamespacePopulations().Informer().GetStore()
		inventory := &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: v1alpha1.PopulatedNamespaceStatus{
			Objects: []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", State: v1alpha1.PopulatedObjectConflict}}}}
		if err := informers.PopulatedNamespaces().Informer().GetStore().Add(inventory); err != nil {
			t.Fatal(err)
		}
		for _, checks := range []int{1, 0} {
			if err := populations.Add(stored); err != nil {
				t.Fatal(err)
			}
			if err := c.writeStatus(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(recheckReady)
			synctest.Wait()
			if c.readiness.Len() != checks {
				t.Errorf("%d checks are queued, want %d", c.readiness.Len(), checks)
			}
			for c.readiness.Len() > 0 {
				name, _ := c.readiness.Get()
				c.readiness.Done(name)
			}
			if stored, err = nsinit.NsinitV1alpha1().NamespacePopulations().Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, queue := range []workers.Queue{c.changes, c.repairs, c.rollouts, c.statuses, c.readiness} {
			queue.ShutDown()
		}
	})
}
