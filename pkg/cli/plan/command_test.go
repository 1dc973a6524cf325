/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func configuration(name string, initializers ...v1alpha1.RegisteredInitializer) *v1alpha1.NamespaceInitializerConfiguration {
	return &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: initializers}
}

func when(name, expression string) v1alpha1.RegisteredInitializer {
	return v1alpha1.RegisteredInitializer{Name: name, MatchConditions: []v1alpha1.MatchCondition{{Name: "c", Expression: expression}}}
}

// configurations register an initializer for all namespaces, one for team-a that is a participant, one for gold, and one whose
// expression fails.
func configurations() []runtime.Object {
	teamA := when("team.example.com", `"team-a" in creatorGroups`)
	teamA.Finalizer, teamA.Holds = true, new(v1alpha1.HoldContent)
	gold := v1alpha1.RegisteredInitializer{Name: "gold.example.com", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
	dns := v1alpha1.RegisteredInitializer{Name: "dns.example.com", Ordering: &v1alpha1.InitializerOrdering{}}
	return []runtime.Object{
		configuration("10", v1alpha1.RegisteredInitializer{Name: "all.example.com"}, teamA, dns),
		configuration("20", gold, when("cost.example.com", `namespaceObject.metadata.labels.cost == "1"`), v1alpha1.RegisteredInitializer{Name: "all.example.com"}),
	}
}

// shop is a namespace that alice of team-a created, and its NamespaceLifecycle.
func shop() []runtime.Object {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{"cost": "1"},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice", v1alpha1.AnnotationCreatedByGroups: "team-a"}}}
	planned := func(name string) v1alpha1.PlannedInitializer {
		return v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}, Configuration: &v1alpha1.ConfigurationReference{Name: "10"}}
	}
	lifecycle := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.NamespaceLifecycleSpec{
		NamespaceUID: "u", Plan: []v1alpha1.PlannedInitializer{planned("all.example.com"), planned("team.example.com"), planned("old.example.com")},
	}}
	lifecycle.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "all.example.com", State: v1alpha1.InitializerDone}, {Name: "team.example.com", State: v1alpha1.InitializerRunning}}
	lifecycle.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Message: "an expression failed"}}
	return []runtime.Object{namespace, lifecycle}
}

func cluster(objects ...runtime.Object) *cmdtesting.Cluster {
	c := cmdtesting.New(append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-exemptions"},
		Data: map[string]string{"namespaces": "kube-system\n", "namePrefixes": "tool-\n", "users": "operator\n"}})...)
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "bob", Groups: []string{"team-a"}}}}, nil
	})
	return c
}

const future = `Namespace "new" does not exist. If alice creates it, its plan is:

INITIALIZER            CONFIGURATION   AFTER
lifecycle.nsinit.dev   <none>          <none>
all.example.com        10              lifecycle.nsinit.dev
team.example.com       10              all before it
dns.example.com        10              lifecycle.nsinit.dev
cost.example.com       20              all before it

The plan differs from what the configurations say: initializer "cost.example.com" of configuration "20" is in the plan because an expression failed, which counts as a match: matchCondition "c": no such key: cost

Left out:

INITIALIZER        CONFIGURATION   WHY
gold.example.com   20              namespaceSelector "tier=gold" does not match the labels of the namespace
all.example.com    20              configuration "10" registers it first
`

const existing = `The plan of namespace "shop":

INITIALIZER        CONFIGURATION   AFTER             STATE
all.example.com    10              <none>            Done
team.example.com   10              all.example.com   Running
old.example.com    10              all before it     <unknown>

The plan differs from what the configurations say: an expression failed

Left out:

INITIALIZER        CONFIGURATION   WHY
dns.example.com    10              it would be in a plan made now: the configuration or the namespace changed after the plan was made
cost.example.com   20              it would be in a plan made now: the configuration or the namespace changed after the plan was made
gold.example.com   20              namespaceSelector "tier=gold" does not match the labels of the namespace
all.example.com    20              configuration "10" registers it first
`

func TestPlan(t *testing.T) {
	all := append(configurations(), shop()...)
	former := shop()
	former[1].(*v1alpha1.NamespaceLifecycle).Spec.NamespaceUID = "former"
	generated := shop()
	generated[0].(*corev1.Namespace).Name, generated[0].(*corev1.Namespace).GenerateName = "tool-x", "to" // not the prefix
	generated[1].(*v1alpha1.NamespaceLifecycle).Name = "tool-x"
	adopted := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}},
		&v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}}
	unplanned := []runtime.Object{adopted[0].DeepCopyObject(), adopted[1]}
	unplanned[0].(*corev1.Namespace).Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
	const names, leftOut = "--output=jsonpath={.initializers[*].name}", "--output=jsonpath={.leftOut[*].reason}"
	for name, test := range map[string]struct {
		objects []runtime.Object
		test    cmdtesting.Test
	}{
		"a future namespace":    {all, cmdtesting.Test{Args: []string{"new", "--creator=alice", "--groups=team-a"}, Out: future}},
		"of your own":           {all, cmdtesting.Test{Args: []string{"new", "--output=jsonpath={.kind} {.creator} {.exists} {.initializers[2].name} {.initializers[2].after}"}, Out: `NamespacePlan bob false team.example.com ["lifecycle.nsinit.dev","all.example.com"]`}},
		"a participant":         {all, cmdtesting.Test{Args: []string{"new", "--output=jsonpath={.initializers[*].finalizer} {.initializers[*].holds}"}, Out: "true Content"}},
		"your own with a group": {all, cmdtesting.Test{Args: []string{"new", "--groups=team-b", leftOut}, Out: "ConditionFalse SelectorMismatch NameTaken"}},
		"with labels":           {all, cmdtesting.Test{Args: []string{"new", "--creator=carol", "--labels=tier=gold,cost=2", names}, Out: "all.example.com dns.example.com gold.example.com"}},
		"nothing is registered": {nil, cmdtesting.Test{Args: []string{"new", "--creator=carol"}, Out: "Namespace \"new\" does not exist. If carol creates it, no initializer acts on it.\n"}},
		"an existing namespace": {all, cmdtesting.Test{Args: []string{"shop"}, Out: existing}},
		"its fields":            {all, cmdtesting.Test{Args: []string{"shop", leftOut}, Out: "ChangedLater ChangedLater SelectorMismatch NameTaken"}},
		"an empty plan":         {[]runtime.Object{shop()[0], &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}}, cmdtesting.Test{Args: []string{"shop"}, Out: "The plan of namespace \"shop\" is empty: no initializer acts on it.\n"}},
		"never closed": {append(configurations(), adopted...), cmdtesting.Test{Args: []string{"shop"},
			Out: "The plan of namespace \"shop\" is empty: it was not closed when it was created: it is older than nsinit, its creator is exempt, or nsinit was off.\n"}},
		"not planned yet":        {append(configurations(), unplanned...), cmdtesting.Test{Args: []string{"shop", leftOut}, Out: "ChangedLater ChangedLater ConditionFalse ChangedLater SelectorMismatch NameTaken"}},
		"exempt by name":         {all, cmdtesting.Test{Args: []string{"kube-system", "--creator=alice"}, Out: "nsinit ignores namespace \"kube-system\": ConfigMap nsinit-system/nsinit-exemptions exempts it: line 1 of namespaces, \"kube-system\".\n"}},
		"exempt by user":         {all, cmdtesting.Test{Args: []string{"new", "--creator=operator"}, Out: "nsinit ignores namespace \"new\": ConfigMap nsinit-system/nsinit-exemptions exempts it: line 1 of users, \"operator\".\n"}},
		"a generated name":       {append(configurations(), generated...), cmdtesting.Test{Args: []string{"tool-x", leftOut}, Out: "ChangedLater ChangedLater SelectorMismatch NameTaken"}},
		"a former lifecycle":     {former, cmdtesting.Test{Args: []string{"shop"}, Err: `namespace "shop" has no plan yet: its NamespaceLifecycle is of a former namespace of this name; run kubectl nsinit why shop`}},
		"no lifecycle":           {shop()[:1], cmdtesting.Test{Args: []string{"shop"}, Err: `namespace "shop" has no NamespaceLifecycle; run kubectl nsinit why shop`}},
		"flags that do not help": {all, cmdtesting.Test{Args: []string{"shop", "--groups=x"}, Err: `namespace "shop" exists: --creator, --groups and --labels are for namespaces that do not`}},
		"labels that are none":   {all, cmdtesting.Test{Args: []string{"new", "--labels=a"}, Err: "--labels=a: "}},
		"no such format":         {nil, cmdtesting.Test{Args: []string{"shop", "-o", "name"}, Err: `output format "name", allowed formats are:`}},
		"no arguments":           {nil, cmdtesting.Test{Err: "the argument NAMESPACE is missing; for example:"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = cluster(test.objects...)
			test.test.Check(t, plan.NewCommand)
		})
	}
}

// TestUnreadableExemptions: without the permission to read the exemptions, the plan is printed with a note.
func TestUnreadableExemptions(t *testing.T) {
	out, errOut, err := cmdtesting.New(append(configurations(), shop()...)...).Run(t, plan.NewCommand, "shop")
	if err != nil || out != existing || errOut != "Exemptions are not considered: cannot read the list of exemptions, ConfigMap nsinit-system/nsinit-exemptions: configmaps \"nsinit-exemptions\" not found\n" {
		t.Errorf("%v, %q, %q", err, out, errOut)
	}
}

// TestUnknownUser: the error says how to name the creator.
func TestUnknownUser(t *testing.T) {
	c := cluster()
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no rights") })
	cmdtesting.Test{Cluster: c, Args: []string{"new"}, Err: "cannot determine your user name: no rights; name the creator with --creator"}.Check(t, plan.NewCommand)
}

// TestGroups: a creator has the groups that kube-apiserver adds.
func TestGroups(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a user":            {[]string{"--creator=alice", "--groups=a,b"}, "a b system:authenticated"},
		"a service account": {[]string{"--creator=system:serviceaccount:x:y"}, "system:serviceaccounts system:serviceaccounts:x system:authenticated"},
		"anonymous":         {[]string{"--creator=system:anonymous"}, "system:unauthenticated"},
		"said":              {[]string{"--creator=alice", "--groups=system:authenticated"}, "system:authenticated"},
	} {
		t.Run(name, func(t *testing.T) {
			var registered []v1alpha1.RegisteredInitializer
			for i, group := range strings.Fields("a b system:serviceaccounts system:serviceaccounts:x system:authenticated system:unauthenticated") {
				registered = append(registered, when(fmt.Sprintf("g%d.example.com", i), `"`+group+`" in creatorGroups`))
			}
			out, _, err := cluster(configuration("1", registered...)).Run(t, plan.NewCommand, append(test.args, "new", "--output=jsonpath={.initializers[*].name}")...)
			if err != nil {
				t.Fatal(err)
			}
			var groups []string
			for _, i := range registered {
				if strings.Contains(out, i.Name) {
					groups = append(groups, strings.Split(i.MatchConditions[0].Expression, `"`)[1])
				}
			}
			if got := strings.Join(groups, " "); got != test.want {
				t.Errorf("the groups are %s, want %s", got, test.want)
			}
		})
	}
}
