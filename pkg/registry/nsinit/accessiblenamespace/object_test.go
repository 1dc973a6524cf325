/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestObjects: what the creator and another user get, and what kubectl prints.
func TestObjects(t *testing.T) {
	created, changed := metav1.NewTime(time.Unix(10, 0).UTC()), metav1.NewTime(time.Unix(20, 0).UTC())
	condition := func(kind corev1.NamespaceConditionType, status corev1.ConditionStatus, message string) func(*corev1.Namespace) {
		return func(n *corev1.Namespace) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: kind, Status: status, Reason: "R", Message: message, LastTransitionTime: changed})
		}
	}
	type row struct{ Phase, Message string }
	for name, test := range map[string]struct {
		changes []func(*corev1.Namespace)
		phase   v1alpha1.LifecyclePhase
		ready   metav1.Condition
		row     row
	}{
		"of before nsinit": {nil, "Active",
			metav1.Condition{Type: "Ready", Status: "True", Reason: "Active", Message: "nsinit does not initialize the namespace", LastTransitionTime: created}, row{"Active", "<none>"}},
		"closed, without conditions": {[]func(*corev1.Namespace){closed}, "Initializing",
			metav1.Condition{Type: "Ready", Status: "False", Reason: "Initializing", Message: "the namespace is being initialized", LastTransitionTime: created},
			row{"Initializing", "the namespace is being initialized"}},
		"closed": {[]func(*corev1.Namespace){closed, condition("Ready", "False", "waiting\nfor a")}, "Initializing",
			metav1.Condition{Type: "Ready", Status: "False", Reason: "R", Message: "waiting\nfor a", LastTransitionTime: changed}, row{"Initializing", "waiting for a"}},
		"open": {[]func(*corev1.Namespace){condition("Ready", "True", "all are done")}, "Active",
			metav1.Condition{Type: "Ready", Status: "True", Reason: "R", Message: "all are done", LastTransitionTime: changed}, row{"Active", "<none>"}},
		"frozen": {[]func(*corev1.Namespace){condition("Frozen", "True", "for an audit"), condition("Ready", "True", "")}, "Active",
			metav1.Condition{Type: "Ready", Status: "True", Reason: "R", LastTransitionTime: changed}, row{"Active,Frozen", "for an audit"}},
		"unfrozen": {[]func(*corev1.Namespace){condition("Frozen", "False", "x"), condition("Ready", "True", "")}, "Active",
			metav1.Condition{Type: "Ready", Status: "True", Reason: "R", LastTransitionTime: changed}, row{"Active", "<none>"}},
		"deleted": {[]func(*corev1.Namespace){func(n *corev1.Namespace) { n.DeletionTimestamp = &changed }}, "Terminating",
			metav1.Condition{Type: "Ready", Status: "False", Reason: "Terminating", Message: "the namespace is being deleted", LastTransitionTime: changed},
			row{"Terminating", "the namespace is being deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := namespace("shop", append(test.changes, by("jane"), func(n *corev1.Namespace) { n.Labels["team"], n.CreationTimestamp = "a", created })...)
			for who, creator := range map[string]string{"jane": "jane", "john": ""} {
				v := &view{user: &user.DefaultInfo{Name: who}}
				got := v.object(state{namespace: n, version: 7})
				want := metav1.ObjectMeta{Name: "shop", UID: "shop", ResourceVersion: "7", Labels: n.Labels, CreationTimestamp: created, DeletionTimestamp: n.DeletionTimestamp}
				if diff := cmp.Diff(want, got.ObjectMeta); diff != "" || got.Status.Creator != creator || got.Status.Phase != test.phase || len(got.Status.Conditions) != max(1, len(n.Status.Conditions)) {
					t.Errorf("%s gets %+v, (-want +got):\n%s", who, got, diff)
				}
				if diff := cmp.Diff(test.ready, got.Status.Conditions[len(got.Status.Conditions)-1]); diff != "" {
					t.Errorf("the condition Ready (-want +got):\n%s", diff)
				}
				table, err := newTable().ConvertToTable(t.Context(), &nsinit.AccessibleNamespaceList{Items: []nsinit.AccessibleNamespace{*got}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				cells := table.Rows[0].Cells
				if diff := cmp.Diff(test.row, row{cells[1].(string), cells[4].(string)}); diff != "" || cells[0] != "shop" || cells[2] == "<unknown>" {
					t.Errorf("%v (-want +got):\n%s", cells, diff)
				}
			}
		})
	}
}
