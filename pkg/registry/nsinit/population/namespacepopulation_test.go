/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestTable: the column READY is the status of the condition Ready, and the message is the first error.
func TestTable(t *testing.T) {
	missing := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: "no permission to create roles"}
	failed := []v1alpha1.PopulationManifestStatus{{Name: "fine", Applied: 3}, {Name: "quota", Applied: 1, Failed: 2, Namespace: "shop", Message: "forbidden"}}
	for name, test := range map[string]struct {
		status v1alpha1.NamespacePopulationStatus
		want   []any
	}{
		"not checked yet": {v1alpha1.NamespacePopulationStatus{}, []any{"p", "Unknown", int64(1), int64(0), int64(0), "", "<unknown>", int64(0), int64(0), ""}},
		"ready": {v1alpha1.NamespacePopulationStatus{Namespaces: 3, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "fine"}}},
			[]any{"p", "True", int64(1), int64(3), int64(0), "", "<unknown>", int64(0), int64(0), ""}},
		"not ready": {v1alpha1.NamespacePopulationStatus{Conditions: []metav1.Condition{missing}},
			[]any{"p", "False", int64(1), int64(0), int64(0), "", "<unknown>", int64(0), int64(0), "no permission to create roles"}},
		"not ready, and failed": {v1alpha1.NamespacePopulationStatus{Namespaces: 3, Conditions: []metav1.Condition{missing}, Manifests: failed},
			[]any{"p", "False", int64(1), int64(3), int64(2), "", "<unknown>", int64(0), int64(0), "quota in shop: forbidden"}},
		"paused": {v1alpha1.NamespacePopulationStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionRolledOut, Reason: v1alpha1.ReasonRolloutPaused}},
			Rollout: &v1alpha1.PopulationRolloutStatus{Namespaces: 40, Current: 3, Conflicts: 1, Refused: 5}},
			[]any{"p", "Unknown", int64(1), int64(0), int64(0), "Paused 3/40", "<unknown>", int64(1), int64(5), ""}},
		"without exemptions": {v1alpha1.NamespacePopulationStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionRolledOut, Reason: v1alpha1.ReasonRolloutExemptionsUnknown}}},
			[]any{"p", "Unknown", int64(1), int64(0), int64(0), "ExemptionsUnknown", "<unknown>", int64(0), int64(0), ""}},
	} {
		t.Run(name, func(t *testing.T) {
			population := &nsinit.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec: v1alpha1.NamespacePopulationSpec{Manifests: make([]v1alpha1.PopulationManifest, 1)}, Status: test.status}
			table, err := NewKind().Table.ConvertToTable(t.Context(), population, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, table.Rows[0].Cells); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(table.ColumnDefinitions) != len(test.want) || table.ColumnDefinitions[1].Name != "Ready" {
				t.Errorf("the columns are %v", table.ColumnDefinitions)
			}
		})
	}
}
