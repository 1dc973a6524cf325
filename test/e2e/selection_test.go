//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// selecting is an initializer with one condition.
func selecting(name, condition, expression string) v1alpha1.RegisteredInitializer {
	return v1alpha1.RegisteredInitializer{Name: name, MatchConditions: []v1alpha1.MatchCondition{{Name: condition, Expression: expression}}}
}

// TestSelection: initializers select namespaces by creator, name and labels. Only those that select a namespace have a turn
// and a finalizer. kubectl nsinit plan predicts the plan of each namespace, and says why the others are left out.
func TestSelection(t *testing.T) {
	const quota, dns, backup, cost = "quota.selection.example.com", "dns.selection.example.com", "backup.selection.example.com", "cost.selection.example.com"
	c := framework.Connect(t)
	prefix := framework.UniqueName("selected") + "-"
	participant := selecting(dns, "prefix", fmt.Sprintf("namespaceObject.metadata.name.startsWith(%q)", prefix))
	participant.Finalizer = true
	configuration := c.Configure(t,
		selecting(quota, "team", `"team-a" in creatorGroups`), participant,
		v1alpha1.RegisteredInitializer{Name: backup, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"backup": "true"}}},
		selecting(cost, "centre", `namespaceObject.metadata.labels["cost-centre"] == "1"`))
	c.ActAs(t, v1alpha1.InitializerLifecycle, quota, dns, backup, cost)

	for name, test := range map[string]struct {
		user, group, namespace string
		labels                 map[string]string
		want, leftOut          []string
		degraded               bool
	}{
		"alice of team-a": {"selection-alice", "team-a", prefix + "shop", nil, []string{v1alpha1.InitializerLifecycle, quota, dns, cost}, []string{"SelectorMismatch"}, true},
		"bob of team-b": {"selection-bob", "team-b", framework.UniqueName("ns"), map[string]string{"backup": "true", "cost-centre": "2"}, []string{backup},
			[]string{"ConditionFalse", "ConditionFalse", "ConditionFalse"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := kubernetes.NewForConfigOrDie(c.As(test.user, test.group))
			c.Grant(t, test.user, client, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}})
			var labels []string
			for key, value := range test.labels {
				labels = append(labels, key+"="+value)
			}
			const names, reasons = "--output=jsonpath={.initializers[*].name}", `--output=jsonpath={.leftOut[?(@.reason!="ConfigurationDeleted")].reason}`
			future := []string{"plan", test.namespace, "--creator=" + test.user, "--groups=" + test.group, "--labels=" + strings.Join(labels, ",")}
			predicted := c.MustPlugin(t, append(slices.Clone(future), names)...)
			if want := strings.Join(test.want, " "); predicted != want {
				t.Errorf("%q is predicted, want %q", predicted, want)
			}
			if got, want := c.MustPlugin(t, append(slices.Clone(future), reasons)...), strings.Join(test.leftOut, " "); got != want {
				t.Errorf("the others are left out because of %q, want %q", got, want)
			}

			// The stamp replaces forged annotations.
			_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: test.namespace, Labels: test.labels,
				Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "root", v1alpha1.AnnotationCreatedByGroups: "team-a\nteam-b"}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c.LeaveLater(t, test.namespace)
			c.WaitReady(t, test.namespace)
			lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), test.namespace, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var stored []string
			for i, planned := range lifecycle.Spec.Plan {
				stored = append(stored, planned.Name)
				if planned.MatchConditions != nil || planned.NamespaceSelector != nil || lifecycle.Status.Initializers[i].State != v1alpha1.InitializerDone {
					t.Errorf("the plan has %+v, %+v", planned, lifecycle.Status.Initializers[i])
				}
			}
			if got := strings.Join(stored, " "); got != predicted {
				t.Errorf("the plan is %q, and %q was predicted", got, predicted)
			}
			if got := c.MustPlugin(t, "plan", test.namespace, names); got != predicted {
				t.Errorf("%q is shown, and %q was predicted", got, predicted)
			}
			if got, want := c.MustPlugin(t, "plan", test.namespace, reasons), strings.Join(test.leftOut, " "); got != want {
				t.Errorf("the others are left out because of %q, want %q", got, want)
			}
			if slices.Contains(lifecycle.Spec.Finalizers, dns) != slices.Contains(test.want, dns) {
				t.Errorf("the finalizers are %q", lifecycle.Spec.Finalizers)
			}
			checkDegraded(t, c, lifecycle, configuration.Name, test.degraded)
			if slices.Contains(test.want, dns) {
				c.DeleteNamespace(t, test.namespace)
				c.ReleaseParticipant(t, test.namespace, dns)
			}
		})
	}
}

// checkDegraded checks that a failed expression is reported everywhere, or nowhere.
func checkDegraded(t *testing.T, c *framework.Cluster, lifecycle *v1alpha1.NamespaceLifecycle, configuration string, want bool) {
	t.Helper()
	condition := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	message := fmt.Sprintf(`initializer "cost.selection.example.com" of configuration %q is in the plan because an expression failed, which counts as a match: matchCondition "centre": no such key: cost-centre`, configuration)
	switch {
	case !want && condition != nil:
		t.Errorf("the plan is degraded: %+v", condition)
	case want && (condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonExpressionFailed || condition.Message != message):
		t.Errorf("the condition is %+v", condition)
	}
	if !want {
		return
	}
	if out := c.MustPlugin(t, "status", lifecycle.Name); !strings.Contains(out, "PlanDegraded=True: "+message) {
		t.Errorf("status prints\n%s", out)
	}
	if finding := c.WaitWhy(t, lifecycle.Name, diagnosis.PlanDegraded, diagnosis.Healthy); finding.Message != message || finding.Remedies[0].Command != "kubectl nsinit plan "+lifecycle.Name {
		t.Errorf("why says %s", framework.JSON(t, finding))
	}
}

// TestFailedSelection: a creator who makes an expression fail gets the stricter of two entries with the same name, whichever comes
// first.
func TestFailedSelection(t *testing.T) {
	const initializer = "quota.failed-selection.example.com"
	c := framework.Share(t)
	namespaces := c.Name("fails")
	lenient := v1alpha1.RegisteredInitializer{FailurePolicy: new(v1alpha1.Ignore), TimeoutSeconds: new(int32(1))}
	for name, test := range map[string]struct {
		fails, later v1alpha1.RegisteredInitializer
	}{
		"a lenient entry fails": {lenient, v1alpha1.RegisteredInitializer{}},
		"a strict entry fails":  {v1alpha1.RegisteredInitializer{}, lenient},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := v1alpha1.MatchCondition{Name: "prefix", Expression: fmt.Sprintf("namespaceObject.metadata.name.startsWith(%q)", namespaces)}
			test.fails.MatchConditions = []v1alpha1.MatchCondition{prefix, {Name: "tier", Expression: `namespaceObject.metadata.labels["tier"] == "gold"`}}
			test.later.MatchConditions = []v1alpha1.MatchCondition{prefix}
			test.fails.Name, test.later.Name = initializer, initializer
			c.Configure(t, test.fails)
			later := c.Configure(t, test.later)
			namespace := framework.UniqueName(namespaces)
			if _, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.LeaveLater(t, namespace)
			lifecycle := c.WaitCurrent(t, namespace, initializer)
			if entry := lifecycle.Spec.Plan[0]; len(lifecycle.Spec.Plan) != 1 || entry.FailurePolicy != nil || entry.TimeoutSeconds != nil || entry.Configuration.Name != later.Name {
				t.Errorf("the plan is %s", framework.JSON(t, lifecycle.Spec.Plan))
			}
			if degraded := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded); degraded == nil || degraded.Reason != v1alpha1.ReasonExpressionFailed {
				t.Errorf("the condition is %+v", degraded)
			}
		})
	}
}

// TestWrongExpression: a configuration with a wrong expression is refused, and the message shows the position.
func TestWrongExpression(t *testing.T) {
	c := framework.Share(t)
	for expression, want := range map[string]string{
		`creatorGroup.exists(g, g == "team-a")`: "initializers[0].matchConditions[0].expression: Invalid value: \"creatorGroup.exists(g, g == \\\"team-a\\\")\": " +
			"ERROR: <input>:1:1: undeclared reference to 'creatorGroup' (in container '')\n | creatorGroup.exists(g, g == \"team-a\")\n | ^",
		`creatorGroups.exists(g, creatorGroups.exists(h, h == g))`: "its estimated cost is 33560578, and may be 1000000: do not nest loops",
		``: "initializers[0].matchConditions[0].expression: Required value",
	} {
		_, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("wrong")}, Initializers: []v1alpha1.RegisteredInitializer{selecting("wrong.example.com", "c", expression)},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant\n%s", expression, err, want)
		}
	}
}
