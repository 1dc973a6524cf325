/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// changing is what the plugin reads, which may be another thing each time.
type changing struct {
	t *rapid.T
	// namespace and lists are what was read last, nil for an error.
	namespace *corev1.Namespace
	list      []v1alpha1.NamespaceInitializerConfiguration
	failed    bool
	open      bool
}

func (c *changing) Configurations(context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	if c.failed = rapid.IntRange(0, 9).Draw(c.t, "the source answers") == 9; c.failed {
		return nil, errors.New("etcd did not answer within 2s")
	}
	if c.list != nil && rapid.IntRange(0, 3).Draw(c.t, "the list changes") < 3 {
		return c.list, nil
	}
	c.list = list(rapid.SampledFrom([][]string{nil, {"a.example.com"}, {"a.example.com", "b.example.com"}}).Draw(c.t, "initializers")...)
	if len(c.list[0].Initializers) > 0 {
		c.list[0].Initializers[0].Finalizer = rapid.Bool().Draw(c.t, "finalizer")
		for _, expression := range rapid.SliceOfN(rapid.SampledFrom([]string{
			`creator == "alice"`, `"team-a" in creatorGroups`, `namespaceObject.metadata.labels.team == "a"`, `has(namespaceObject.metadata.labels.team)`, "true",
		}), 0, 2).Draw(c.t, "matchConditions") {
			c.list[0].Initializers[0].MatchConditions = append(c.list[0].Initializers[0].MatchConditions, v1alpha1.MatchCondition{Name: "c", Expression: expression})
		}
		if team := rapid.SampledFrom([]string{"", "", "", "a", "b"}).Draw(c.t, "namespaceSelector"); team != "" {
			c.list[0].Initializers[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
		}
	}
	return c.list, nil
}

func (c *changing) read(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	c.namespace = nil
	what := rapid.SampledFrom([]string{"closed", "closed", "closed", "closed", "closed", "closed", "open", "another", "terminating", "absent", "unreadable"}).Draw(c.t, "namespace")
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
	n.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: rapid.SampledFrom([]string{"alice", "bob"}).Draw(c.t, "creator"),
		v1alpha1.AnnotationCreatedByGroups: rapid.SampledFrom([]string{"", "team-a\nx"}).Draw(c.t, "groups")}
	if team := rapid.SampledFrom([]string{"", "a", "b"}).Draw(c.t, "team"); team != "" {
		n.Labels["team"] = team
	}
	switch what {
	case "absent":
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case "unreadable":
		return nil, errors.New("out of order")
	case "open":
		n.Labels = nil
	case "another":
		n.UID = "another"
	case "terminating":
		n.DeletionTimestamp = &metav1.Time{}
	}
	c.namespace = n
	return n, nil
}

func (c *changing) authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if c.open {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestAdmittedPlan: the stored plan is the one that kubectl nsinit plan predicts, with the same function. Whatever changes
// while a lifecycle is created, and whatever its sender wrote into it, an admitted lifecycle has the UID of the live
// namespace, and the plan and the participants that are in force, unless its sender may open namespaces.
func TestAdmittedPlan(t *testing.T) {
	admitted := 0
	rapid.Check(t, func(t *rapid.T) {
		c := &changing{t: t, open: rapid.IntRange(0, 4).Draw(t, "privileged") == 4}
		p := NewNamespaceInitializers()
		p.setDependencies(Dependencies{Checker: authorization.New(authorizer.AuthorizerFunc(c.authorize)), Configurations: c.Configurations, Namespace: c.read})
		lifecycle := newTestLifecycle()
		lifecycle.Spec.NamespaceUID = rapid.SampledFrom([]types.UID{"u", "u", "u", "u", "another", ""}).Draw(t, "namespaceUID")
		switch rapid.SampledFrom([]string{"nothing", "nothing", "nothing", "nothing", "plan", "initializers"}).Draw(t, "the sender writes") {
		case "plan":
			lifecycle.Spec.Plan = []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "forged.example.com"}}}
		case "initializers":
			lifecycle.Spec.Initializers = &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "b.example.com"}}}
		}
		ctx := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "u"})
		if p.Admit(ctx, create(lifecycle, ""), nil) != nil {
			return
		}
		admitted++
		if c.namespace == nil || c.failed || c.namespace.DeletionTimestamp != nil || c.namespace.UID != lifecycle.Spec.NamespaceUID {
			t.Fatalf("admitted %+v for the namespace %+v", lifecycle.Spec, c.namespace)
		}
		if !c.open {
			checkPlan(t, c, lifecycle)
		}
	})
	if admitted == 0 && !testing.Short() { // with -short, rapid tries too little
		t.Error("no lifecycle was admitted")
	}
}

func checkPlan(t *rapid.T, c *changing, lifecycle *nsinit.NamespaceLifecycle) {
	predicted := &plan.Plan{}
	if len(c.namespace.Labels) > 0 {
		predicted = plan.NewMerger().Merge(c.list, c.namespace)
	}
	want := predicted.Entries
	if diff := cmp.Diff(predicted.Condition(), meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)); diff != "" {
		t.Fatalf("the condition PlanDegraded is not that of the plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, lifecycle.Spec.Plan); diff != "" {
		t.Fatalf("the plan is not what is in force (-want +got):\n%s", diff)
	}
	for i, planned := range want {
		if lifecycle.Spec.Initializers == nil || len(lifecycle.Spec.Initializers.Pending) != len(want) || lifecycle.Spec.Initializers.Pending[i].Name != planned.Name {
			t.Fatalf("planned is %+v, and pending %+v", want, lifecycle.Spec.Initializers)
		}
		if planned.Finalizer && !slices.Contains(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(planned.Name)) {
			t.Fatalf("participant %q does not hold the lifecycle: %q", planned.Name, lifecycle.Spec.Finalizers)
		}
	}
	if want == nil && lifecycle.Spec.Initializers != nil {
		t.Fatalf("nothing is planned, and pending is %+v", lifecycle.Spec.Initializers)
	}
}
