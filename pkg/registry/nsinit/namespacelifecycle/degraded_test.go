/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestPlanDegraded: a new lifecycle keeps the condition that admission has set, and nothing else of the status. The
// condition lasts, and no user changes it.
func TestPlanDegraded(t *testing.T) {
	record := planOf("a", "b")
	degraded := metav1.Condition{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpressionFailed, Message: "no such key"}
	record.Status = v1alpha1.NamespaceLifecycleStatus{
		Phase:      v1alpha1.LifecycleActive,
		Conditions: []metav1.Condition{degraded, {Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue}},
	}
	begin(record, at(3), "controller")
	degraded.LastTransitionTime = metav1.NewTime(at(3))
	check := func(step string, r *nsinit.NamespaceLifecycle) {
		t.Helper()
		degraded.ObservedGeneration = r.Generation
		if diff := cmp.Diff(&degraded, meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPlanDegraded)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	check("begin", record)
	if record.Status.Phase != v1alpha1.LifecycleInitializing || meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		t.Errorf("the status that was sent is kept: %+v", record.Status)
	}
	change(record, at(5), "hook-a", "b")
	check("a is done", record)
	sent := record.DeepCopy()
	sent.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionFalse}}
	copyDerived(sent, record)
	check("a user changes it", sent)
}
