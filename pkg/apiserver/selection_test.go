/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestSelection: the plan of a namespace depends on its creator and labels. A participant that is not selected gets no
// finalizer. A failed expression is reported, and neither the creator of the NamespaceLifecycle nor a later write changes
// the report.
func TestSelection(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1()
	configuration := testserver.Configuration("c", "a.example.com", "b.example.com", "c.example.com")
	when := func(i int, expression string) {
		configuration.Initializers[i].MatchConditions = []v1alpha1.MatchCondition{{Name: "when", Expression: expression}}
	}
	when(0, `"team-a" in creatorGroups`)
	when(1, `namespaceObject.metadata.labels.tier == "gold"`)
	configuration.Initializers[0].Finalizer = true
	configuration.Initializers[2].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"backup": "true"}}
	server.MustConfigure(t, configuration)

	forged := metav1.Condition{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Reason: "Forged", Message: "forged", LastTransitionTime: metav1.Now()}
	for name, test := range map[string]struct {
		groups     string
		labels     map[string]string
		want       []string
		finalizers []v1alpha1.FinalizerName
		degraded   string
	}{
		"team-a":   {"team-a\nx", map[string]string{"tier": "silver"}, []string{v1alpha1.InitializerLifecycle, "a.example.com"}, []v1alpha1.FinalizerName{"kubernetes", "a.example.com"}, ""},
		"labelled": {"x", map[string]string{"tier": "gold", "backup": "true"}, []string{"b.example.com", "c.example.com"}, []v1alpha1.FinalizerName{"kubernetes"}, ""},
		"unlabelled": {"x", nil, []string{"b.example.com"}, []v1alpha1.FinalizerName{"kubernetes"},
			`initializer "b.example.com" of configuration "c" is in the plan because an expression failed, which counts as a match: matchCondition "when": no such key: tier`},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := testserver.Namespace(name, "u", true)
			namespace.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "alice", v1alpha1.AnnotationCreatedByGroups: test.groups}
			maps.Copy(namespace.Labels, test.labels)
			server.Core.SetNamespace(namespace)
			record := testserver.Lifecycle(name, "u")
			record.Status.Conditions = []metav1.Condition{forged}
			stored, err := client.NamespaceLifecycles().Create(t.Context(), record, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var planned []string
			for _, entry := range stored.Spec.Plan {
				planned = append(planned, entry.Name)
			}
			if diff := cmp.Diff(test.want, planned); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
			if len(stored.Spec.Finalizers) != len(test.finalizers) {
				t.Errorf("the finalizers are %q, want %q", stored.Spec.Finalizers, test.finalizers)
			}
			degraded := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionPlanDegraded)
			if (degraded == nil) != (test.degraded == "") || degraded != nil && (degraded.Message != test.degraded || degraded.Reason != v1alpha1.ReasonExpressionFailed || degraded.LastTransitionTime.IsZero()) {
				t.Errorf("the condition is %+v, want %q", degraded, test.degraded)
			}
			meta.RemoveStatusCondition(&stored.Status.Conditions, v1alpha1.ConditionPlanDegraded)
			stored.Status.Conditions = append(stored.Status.Conditions, forged)
			updated, err := client.NamespaceLifecycles().UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(degraded, meta.FindStatusCondition(updated.Status.Conditions, v1alpha1.ConditionPlanDegraded)); diff != "" {
				t.Errorf("a write to the status changes the condition (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWrongConditions: the API server refuses conditions that are wrong, and says where.
func TestWrongConditions(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	valid := v1alpha1.MatchCondition{Name: "a", Expression: "true"}
	many := []v1alpha1.MatchCondition{}
	for i := range 17 {
		many = append(many, v1alpha1.MatchCondition{Name: string(rune('a' + i)), Expression: "true"})
	}
	for name, test := range map[string]struct {
		conditions []v1alpha1.MatchCondition
		want       string
	}{
		"an unknown variable": {[]v1alpha1.MatchCondition{valid, {Name: "b", Expression: `creatorGroup.exists(g, g == "team-a")`}},
			"initializers[0].matchConditions[1].expression: Invalid value: \"creatorGroup.exists(g, g == \\\"team-a\\\")\": ERROR: <input>:1:1: undeclared reference to 'creatorGroup' (in container '')\n | creatorGroup.exists(g, g == \"team-a\")\n | ^"},
		"no expression":      {[]v1alpha1.MatchCondition{{Name: "a"}}, "initializers[0].matchConditions[0].expression: Required value"},
		"no name":            {[]v1alpha1.MatchCondition{{Expression: "true"}}, "initializers[0].matchConditions[0].name: Required value"},
		"the same name":      {[]v1alpha1.MatchCondition{valid, valid}, "initializers[0].matchConditions[1]: Duplicate value"},
		"too many":           {many, "initializers[0].matchConditions: Too many: 17: must have at most 16 items"},
		"too costly":         {[]v1alpha1.MatchCondition{{Name: "a", Expression: `creatorGroups.exists(g, creatorGroups.exists(h, h == g))`}}, "its estimated cost is 33560578, and may be 1000000"},
		"a name with spaces": {[]v1alpha1.MatchCondition{{Name: "a b", Expression: "true"}}, "initializers[0].matchConditions[0].name: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			configuration := testserver.Configuration("wrong", "a.example.com")
			configuration.Initializers[0].MatchConditions = test.conditions
			if _, err := client.Create(t.Context(), configuration, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got\n%v\nwant\n%s", err, test.want)
			}
		})
	}
}
