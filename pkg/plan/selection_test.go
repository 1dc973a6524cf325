/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// when is an initializer with conditions, each named c.
func when(name string, expressions ...string) v1alpha1.RegisteredInitializer {
	i := v1alpha1.RegisteredInitializer{Name: name}
	for _, expression := range expressions {
		i.MatchConditions = append(i.MatchConditions, v1alpha1.MatchCondition{Name: "c", Expression: expression})
	}
	return i
}

// matching is an initializer with a namespaceSelector.
func matching(name string, labels map[string]string) v1alpha1.RegisteredInitializer {
	return v1alpha1.RegisteredInitializer{Name: name, NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

// whenServed is an initializer with the activation WhenServed.
func whenServed(name string) v1alpha1.RegisteredInitializer {
	return v1alpha1.RegisteredInitializer{Name: name, Activation: new(v1alpha1.ActivationWhenServed)}
}

func reported(c v1alpha1.NamespaceInitializerConfiguration, at *metav1.MicroTime, names ...string) v1alpha1.NamespaceInitializerConfiguration {
	for _, name := range names {
		c.Status.Initializers = append(c.Status.Initializers, v1alpha1.RegisteredInitializerStatus{Name: name, ReportTime: at})
	}
	return c
}

// shop is a namespace that alice of team-a created.
func shop() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a-shop", UID: "u", Labels: map[string]string{"tier": "gold"},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice", v1alpha1.AnnotationCreatedByGroups: "team-a\nsystem:authenticated"},
	}}
}

func names(entries []v1alpha1.PlannedInitializer) []string {
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name)
	}
	return all
}

const teamA, teamB = `"team-a" in creatorGroups`, `"team-b" in creatorGroups`

func TestSelection(t *testing.T) {
	const a, b = "a.example.com", "b.example.com"
	broken := `namespaceObject.metadata.labels["x"] == "y"`
	deleted := registered("1", when(a))
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	participant := when(a, teamB)
	participant.Finalizer = true
	invalid := v1alpha1.RegisteredInitializer{Name: a, NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}}
	now := metav1.NewMicroTime(time.Unix(1, 0))
	type list = []v1alpha1.NamespaceInitializerConfiguration
	for name, test := range map[string]struct {
		configurations list
		want           []string
		leftOut        []LeftOut
		degraded       string
	}{
		"a condition that is true":  {list{registered("1", when(a, teamA))}, []string{a}, nil, ""},
		"a condition that is false": {list{registered("1", when(a, teamA, teamB))}, nil, []LeftOut{{a, "1", ConditionFalse, `matchCondition "c" is false: "team-b" in creatorGroups`}}, ""},
		"the name":                  {list{registered("1", when(a, `namespaceObject.metadata.name.startsWith("team-a-")`))}, []string{a}, nil, ""},
		"the creator":               {list{registered("1", when(a, `creator == "alice"`), when(b, `creator != "alice"`))}, []string{a}, []LeftOut{{b, "1", ConditionFalse, `matchCondition "c" is false: creator != "alice"`}}, ""},
		"labels that match":         {list{registered("1", matching(a, map[string]string{"tier": "gold"}))}, []string{a}, nil, ""},
		"labels that do not match":  {list{registered("1", matching(a, map[string]string{"tier": "x"}))}, nil, []LeftOut{{a, "1", SelectorMismatch, `namespaceSelector "tier=x" does not match the labels of the namespace`}}, ""},
		"an empty selector":         {list{registered("1", matching(a, nil))}, []string{a}, nil, ""},
		"an expression that fails": {list{registered("1", when(a, teamA, broken))}, []string{a}, nil,
			`initializer "a.example.com" of configuration "1" is in the plan because an expression failed, which counts as a match: matchCondition "c": no such key: x`},
		"an expression that fails before one that is false": {list{registered("1", when(a, broken, teamB))}, nil, []LeftOut{{a, "1", ConditionFalse, `matchCondition "c" is false: "team-b" in creatorGroups`}}, ""},
		"an expression that cannot be compiled any more": {list{registered("1", when(a, "gone"))}, []string{a}, nil,
			`initializer "a.example.com" of configuration "1" is in the plan because an expression failed, which counts as a match: matchCondition "c": ERROR: <input>:1:1: undeclared reference to 'gone' (in container '')  | gone  | ^`},
		"a selector that is not valid any more": {list{registered("1", invalid)}, []string{a}, nil,
			`initializer "a.example.com" of configuration "1" is in the plan because an expression failed, which counts as a match: namespaceSelector: "Is" is not a valid label selector operator`},
		"the first that is selected has the name": {list{registered("1", when(a, teamB)), registered("2", when(a, teamA)), registered("3", when(a))}, []string{a},
			[]LeftOut{{a, "1", ConditionFalse, `matchCondition "c" is false: "team-b" in creatorGroups`}, {a, "3", NameTaken, `configuration "2" registers it first`}}, ""},
		"a deleted configuration": {list{deleted, registered("2", when(b))}, []string{b}, []LeftOut{{a, "1", ConfigurationDeleted, `configuration "1" is being deleted`}}, ""},
		"not served":              {list{registered("1", whenServed(a), when(b))}, []string{b}, []LeftOut{{a, "1", NotServed, "activation is WhenServed, and no program has reported that it serves the initializer"}}, ""},
		"served":                  {list{reported(registered("1", whenServed(a)), &now, a)}, []string{a}, nil, ""},
		"another one is served": {list{reported(registered("1", whenServed(a)), &now, b)}, nil,
			[]LeftOut{{a, "1", NotServed, "activation is WhenServed, and no program has reported that it serves the initializer"}}, ""},
		"observed, and never reported": {list{reported(registered("1", whenServed(a)), nil, a)}, nil,
			[]LeftOut{{a, "1", NotServed, "activation is WhenServed, and no program has reported that it serves the initializer"}}, ""},
		"a participant that is not selected": {list{registered("1", participant, when(b))}, []string{b}, []LeftOut{{a, "1", ConditionFalse, `matchCondition "c" is false: "team-b" in creatorGroups`}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := NewMerger().Merge(test.configurations, shop())
			if diff := cmp.Diff(test.want, names(plan.Entries)); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.leftOut, plan.LeftOut); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			for _, entry := range plan.Entries {
				if entry.MatchConditions != nil || entry.NamespaceSelector != nil {
					t.Errorf("the plan has the selection of %q", entry.Name)
				}
			}
			condition := plan.Condition()
			switch {
			case condition == nil && test.degraded != "":
				t.Error("there is no condition")
			case condition != nil && (condition.Message != test.degraded || condition.Type != v1alpha1.ConditionPlanDegraded || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonExpressionFailed):
				t.Errorf("the condition is %+v\nwant %s", condition, test.degraded)
			}
		})
	}
}

// TestFailedSelection: an entry whose selection failed neither takes the name from a later entry, nor loses its policies to it.
func TestFailedSelection(t *testing.T) {
	const a = "a.example.com"
	policy := func(i v1alpha1.RegisteredInitializer, policy v1alpha1.FailurePolicyType, seconds int32) v1alpha1.RegisteredInitializer {
		i.FailurePolicy, i.TimeoutSeconds = &policy, &seconds
		return i
	}
	held := func(i v1alpha1.RegisteredInitializer) v1alpha1.RegisteredInitializer {
		i.Finalizer, i.Holds = true, new(v1alpha1.HoldContent)
		return i
	}
	broken, certain, mismatch := when(a, `namespaceObject.metadata.labels["x"] == "y"`), when(a), when(a, teamB)
	for name, test := range map[string]struct {
		entries  []v1alpha1.RegisteredInitializer // of the configurations 1, 2, ...
		want     v1alpha1.RegisteredInitializer
		from     string
		leftOut  []LeftOut
		degraded int
	}{
		"a lenient one before a strict one": {[]v1alpha1.RegisteredInitializer{policy(broken, v1alpha1.Ignore, 1), held(certain)}, held(certain), "2",
			[]LeftOut{{a, "1", NameTaken, `an expression failed, so the entry of configuration "2" is in the plan, as strict as both`}}, 1},
		"a strict one before a lenient one": {[]v1alpha1.RegisteredInitializer{held(broken), policy(certain, v1alpha1.Ignore, 1)}, held(certain), "2",
			[]LeftOut{{a, "1", NameTaken, `an expression failed, so the entry of configuration "2" is in the plan, as strict as both`}}, 1},
		"the longer deadline": {[]v1alpha1.RegisteredInitializer{policy(broken, v1alpha1.Ignore, 1), policy(broken, v1alpha1.Ignore, 9), policy(certain, v1alpha1.Ignore, 3)},
			policy(certain, v1alpha1.Ignore, 9), "3", []LeftOut{{a, "1", NameTaken, `an expression failed, so the entry of configuration "3" is in the plan, as strict as both`},
				{a, "2", NameTaken, `an expression failed, so the entry of configuration "3" is in the plan, as strict as both`}}, 2},
		"Fail is stricter than Ignore": {[]v1alpha1.RegisteredInitializer{policy(broken, v1alpha1.Fail, 1), policy(certain, v1alpha1.Ignore, 9)}, policy(certain, v1alpha1.Fail, 1), "2",
			[]LeftOut{{a, "1", NameTaken, `an expression failed, so the entry of configuration "2" is in the plan, as strict as both`}}, 1},
		"all fail": {[]v1alpha1.RegisteredInitializer{policy(broken, v1alpha1.Ignore, 1), held(broken)}, held(certain), "1",
			[]LeftOut{{a, "2", NameTaken, `an expression failed, so the entry of configuration "1" is in the plan, as strict as both`}}, 2},
		"the next one does not match": {[]v1alpha1.RegisteredInitializer{policy(broken, v1alpha1.Ignore, 1), mismatch}, policy(certain, v1alpha1.Ignore, 1), "1",
			[]LeftOut{{a, "2", ConditionFalse, `matchCondition "c" is false: "team-b" in creatorGroups`}}, 1},
		"one that is certain, before": {[]v1alpha1.RegisteredInitializer{policy(certain, v1alpha1.Ignore, 1), held(broken)}, policy(certain, v1alpha1.Ignore, 1), "1",
			[]LeftOut{{a, "2", NameTaken, `configuration "1" registers it first`}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var configurations []v1alpha1.NamespaceInitializerConfiguration
			for i, entry := range test.entries {
				configurations = append(configurations, registered(fmt.Sprint(i+1), entry))
			}
			got := NewMerger().Merge(configurations, shop())
			want := []v1alpha1.PlannedInitializer{{RegisteredInitializer: test.want, Configuration: &v1alpha1.ConfigurationReference{Name: test.from, UID: types.UID("uid-" + test.from)}}}
			if test.want.Finalizer {
				want = append([]v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}}}, want...)
			}
			if diff := cmp.Diff(want, got.Entries); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.leftOut, got.LeftOut); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			if len(got.Degradations) != test.degraded {
				t.Errorf("the degradations are %+v", got.Degradations)
			}
		})
	}
}

// TestValidateSize: a configuration is refused if it makes the largest plan larger than what can be stored.
func TestValidateSize(t *testing.T) {
	many := func(name string, from, to int, after ...string) v1alpha1.NamespaceInitializerConfiguration {
		c := registered(name)
		for i := from; i < to; i++ {
			c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: fmt.Sprintf("i%04d.example.com", i), Ordering: &v1alpha1.InitializerOrdering{After: after}})
		}
		return c
	}
	long := make([]string, 64)
	for i := range long {
		long[i] = strings.Repeat("x", 250)
	}
	deleted := many("1", 0, 64)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	type list = []v1alpha1.NamespaceInitializerConfiguration
	for name, test := range map[string]struct {
		written v1alpha1.NamespaceInitializerConfiguration
		all     list
		want    string
	}{
		"few":                        {many("3", 128, 160), list{many("1", 0, 64), many("2", 64, 128)}, ""},
		"many":                       {many("3", 128, 192), list{many("1", 0, 64), many("2", 64, 128)}, `initializers: Invalid value: "64 initializers": with those of all configurations, a namespace can get 192 initializers, which take `},
		"with the same names":        {many("3", 64, 128), list{many("1", 0, 64), many("2", 64, 128)}, ""},
		"the older version":          {many("2", 128, 192), list{many("1", 0, 64), many("2", 64, 128)}, ""},
		"a deleted configuration":    {many("3", 128, 192), list{deleted, many("2", 64, 128)}, ""},
		"long lists":                 {many("1", 0, 64, long...), nil, "and may take 1048576: remove initializers, or names in ordering.after"},
		"the longest list of a name": {many("2", 0, 64, long[:40]...), list{many("1", 0, 64), many("3", 64, 128)}, "a namespace can get 128 initializers"},
		"no more than before":        {many("2", 0, 64), list{many("1", 0, 300), many("2", 0, 63)}, ""},
		"fewer than before":          {many("1", 0, 299), list{many("1", 0, 300)}, ""},
		"even more than before":      {many("1", 0, 301), list{many("1", 0, 300)}, "a namespace can get 301 initializers"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ValidateSize(&test.written, test.all); (len(got) > 0) != (test.want != "") || len(got) > 0 && !strings.Contains(got[0].Error(), test.want) {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

// TestLargest: the largest NamespaceLifecycle that ValidateSize allows can be stored.
func TestLargest(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("i%04d.%s.example.com", i, strings.Repeat("x", 235)) }
	var c v1alpha1.NamespaceInitializerConfiguration
	c.Name = strings.Repeat("c", 253)
	l := v1alpha1.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Initializers: &v1alpha1.NamespaceInitializers{}}}
	now := metav1.NowMicro()
	for i := range 1000 {
		c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: name(i), Finalizer: true})
		if ValidateSize(&c, nil) != nil {
			break
		}
		l.Spec.Plan = append(l.Spec.Plan, planned(&c, &c.Initializers[i]))
		l.Spec.Finalizers = append(l.Spec.Finalizers, v1alpha1.FinalizerName(name(i)))
		l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name(i)})
		l.Status.CurrentInitializers = append(l.Status.CurrentInitializers, name(i))
		l.Status.Initializers = append(l.Status.Initializers, v1alpha1.InitializerStatus{Name: name(i), Message: strings.Repeat("m", 4096), StartTime: &now, Deadline: &now, StalledTime: &now})
	}
	if size := l.Size(); len(l.Spec.Plan) < 100 || size > 1<<20 {
		t.Errorf("with %d initializers, it takes %d bytes", len(l.Spec.Plan), size)
	}
}

// TestBudget: all conditions of a plan share a budget. Those after its end are not evaluated, and count as a match.
func TestBudget(t *testing.T) {
	namespace := shop()
	namespace.Annotations[v1alpha1.AnnotationCreatedByGroups] = strings.Repeat("g\n", 500)
	var c v1alpha1.NamespaceInitializerConfiguration
	for i := range 30 {
		c.Initializers = append(c.Initializers, when(fmt.Sprintf("a%02d.example.com", i), `creatorGroups.exists(g, creatorGroups.exists(h, h == "x"))`))
	}
	plan := NewMerger().Merge([]v1alpha1.NamespaceInitializerConfiguration{c}, namespace)
	if len(plan.Entries) != 30 || len(plan.Degradations) != 30 || !strings.Contains(plan.Degradations[29].Message, "not evaluated: the conditions before it cost too much") ||
		strings.Contains(plan.Degradations[2].Message, "not evaluated") {
		t.Errorf("%d entries, %v", len(plan.Entries), plan.Degradations)
	}
	condition := plan.Condition()
	if !strings.HasSuffix(condition.Message, "; and 22 more") || len(condition.Message) > 32768 {
		t.Errorf("the condition is %+v", condition)
	}
	plan.Degradations[0].Message = strings.Repeat("ä", 5000)
	if message := plan.Condition().Message; !strings.HasPrefix(message, strings.Repeat("ä", 512)+"...; initializer") {
		t.Errorf("a long message is not cut: %s", message)
	}
}

func TestIneffective(t *testing.T) {
	const a = "a.example.com"
	second := registered("2", when(a))
	deleted := registered("1", when(a))
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	now := metav1.NewMicroTime(time.Unix(1, 0))
	taken := []string{`initializers[0] "a.example.com" has no effect because configuration "1" registers it first: remove or rename it`}
	for name, test := range map[string]struct {
		first v1alpha1.NamespaceInitializerConfiguration
		want  []string
	}{
		"another name":      {registered("1", when("b.example.com")), nil},
		"the same name":     {registered("1", when(a)), taken},
		"an empty selector": {registered("1", matching(a, nil)), taken},
		"a condition":       {registered("1", when(a, teamA)), nil},
		"a selector":        {registered("1", matching(a, map[string]string{"a": "b"})), nil},
		"deleted":           {deleted, nil},
		"not served":        {registered("1", whenServed(a)), nil},
		"served":            {reported(registered("1", whenServed(a)), &now, a), taken},
		"a later one":       {registered("3", when(a)), nil},
		"an older version":  {registered("2", when(a)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Ineffective(&second, []v1alpha1.NamespaceInitializerConfiguration{second, test.first})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	all := []v1alpha1.NamespaceInitializerConfiguration{registered("1", when(a)), registered("0", when(a))}
	if got := Ineffective(&second, all); len(got) != 1 || !strings.Contains(got[0], `configuration "0" registers it first`) {
		t.Errorf("of two configurations before it: %v", got)
	}
}

// BenchmarkMerge makes plans of 64 entries: without conditions, with one each, and with 16 different ones each.
func BenchmarkMerge(b *testing.B) {
	for _, conditions := range []int{0, 1, 16} {
		b.Run(fmt.Sprintf("entries=64/conditions=%d", conditions), func(b *testing.B) {
			var c v1alpha1.NamespaceInitializerConfiguration
			for i := range 64 {
				expressions := slices.Repeat([]string{teamA}, conditions)
				for j := range expressions {
					expressions[j] = fmt.Sprintf(`creatorGroups.exists(g, g.startsWith("team-")) && namespaceObject.metadata.name != "x-%d-%d"`, i, j)
				}
				c.Initializers = append(c.Initializers, when(fmt.Sprintf("a%02d.example.com", i), expressions...))
			}
			configurations, namespace, merger := []v1alpha1.NamespaceInitializerConfiguration{c}, shop(), NewMerger()
			if got := merger.Merge(configurations, namespace); len(got.Entries) != 64 || len(got.Degradations) > 0 {
				b.Fatal(got)
			}
			b.ReportAllocs()
			for b.Loop() {
				merger.Merge(configurations, namespace)
			}
		})
	}
}
