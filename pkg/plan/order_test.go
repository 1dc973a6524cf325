/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// ordered returns a configuration with initializers such as "a", which waits for all before it, or "a:b,c", which waits for
// b and c. Their domain is example.com.
func ordered(name string, initializers ...string) v1alpha1.NamespaceInitializerConfiguration {
	configuration := v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, initializer := range initializers {
		name, after, found := strings.Cut(initializer, ":")
		registered := v1alpha1.RegisteredInitializer{Name: name + ".example.com"}
		if found {
			registered.Ordering = &v1alpha1.InitializerOrdering{}
		}
		for other := range strings.SplitSeq(after, ",") {
			if other != "" {
				registered.Ordering.After = append(registered.Ordering.After, other+".example.com")
			}
		}
		configuration.Initializers = append(configuration.Initializers, registered)
	}
	return configuration
}

// TestPlanWithoutCycle: initializers of several configurations that wait for each other act in the order of the plan, which
// the NamespaceLifecycle reports. The configurations stay as they are.
func TestPlanWithoutCycle(t *testing.T) {
	configurations := []v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b,x", "x:"), ordered("2", "b:a")}
	plan := NewMerger().Merge(configurations, &corev1.Namespace{})
	var got []string
	for _, entry := range plan.Entries {
		got = append(got, entry.Name+" after "+strings.Join(entry.Ordering.After, ","))
	}
	if diff := cmp.Diff([]string{"a.example.com after x.example.com", "x.example.com after ", "b.example.com after a.example.com"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const want = `the initializers wait for each other: "a.example.com" waits for "b.example.com", "b.example.com" waits for "a.example.com"; ` +
		`in this namespace, ["a.example.com" "b.example.com"] act in the order of the plan: correct ordering in their configurations`
	if condition := plan.Condition(); condition == nil || condition.Reason != v1alpha1.ReasonCycle || condition.Message != want {
		t.Errorf("the condition is %+v", condition)
	}
	if diff := cmp.Diff(ordered("1", "a:b,x", "x:"), configurations[0]); diff != "" {
		t.Errorf("the configuration changed:\n%s", diff)
	}
	if condition := NewMerger().Merge(configurations[:1], &corev1.Namespace{}).Condition(); condition != nil {
		t.Errorf("without a cycle, the condition is %+v", condition)
	}
}

func TestUnknownPredecessors(t *testing.T) {
	deleted := ordered("3", "d:")
	deleted.DeletionTimestamp = &metav1.Time{}
	all := []v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:", "former:"), ordered("2", "b:"), deleted}
	written := ordered("1", "a:b,former", "c:a,d,nowhere")
	written.Initializers[0].Ordering.After = append(written.Initializers[0].Ordering.After, v1alpha1.InitializerLifecycle)
	want := []string{
		`initializers[0].ordering.after[1]: no configuration registers "former.example.com", so it has no effect: check the name`,
		`initializers[1].ordering.after[1]: no configuration registers "d.example.com", so it has no effect: check the name`,
		`initializers[1].ordering.after[2]: no configuration registers "nowhere.example.com", so it has no effect: check the name`,
	}
	if diff := cmp.Diff(want, UnknownPredecessors(&written, all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidateOrder(t *testing.T) {
	deleted := ordered("1", "a:b")
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		all     []v1alpha1.NamespaceInitializerConfiguration
		written v1alpha1.NamespaceInitializerConfiguration
		want    string
	}{
		"no cycle":          {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b")}, ordered("2", "b:"), ""},
		"another namespace": {nil, ordered("2", "b:a"), ""},
		"it closes a cycle": {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b")}, ordered("2", "c:", "b:a"),
			`initializers[1].ordering.after: Invalid value: ["a.example.com"]: the initializers wait for each other: "a.example.com" waits for "b.example.com", ` +
				`"b.example.com" waits for "a.example.com": remove one of these names, or set ordering of an initializer that has none`},
		"without an ordering": {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b")}, ordered("2", "b"),
			`initializers[0].ordering: Invalid value: null: the initializers wait for each other: "a.example.com" waits for "b.example.com", ` +
				`"b.example.com" has no ordering and so waits for "a.example.com": remove one of these names, or set ordering of an initializer that has none`},
		"an update closes it": {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b"), ordered("2", "b:")}, ordered("2", "b:a"),
			`initializers[0].ordering.after: Invalid value: ["a.example.com"]: the initializers wait for each other: "a.example.com" waits for "b.example.com", ` +
				`"b.example.com" waits for "a.example.com": remove one of these names, or set ordering of an initializer that has none`},
		"an update opens it":            {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b"), ordered("2", "b:a")}, ordered("2", "b:"), ""},
		"there was a cycle before":      {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b"), ordered("2", "b:a")}, ordered("3", "c:a"), ""},
		"a deleted one closes no cycle": {[]v1alpha1.NamespaceInitializerConfiguration{deleted}, ordered("2", "b:a"), ""},
		"another cycle": {[]v1alpha1.NamespaceInitializerConfiguration{ordered("1", "a:b", "x:y"), ordered("2", "b:a")}, ordered("3", "y:x"),
			`initializers[0].ordering.after: Invalid value: ["x.example.com"]: the initializers wait for each other: "x.example.com" waits for "y.example.com", ` +
				`"y.example.com" waits for "x.example.com": remove one of these names, or set ordering of an initializer that has none`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := ValidateOrder(&test.written, test.all); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}
