/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package helper_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// lifecycle waits for a and b, which act at the same time, c after b, and d after all.
func lifecycle(changes ...func(*v1alpha1.NamespaceLifecycle)) *v1alpha1.NamespaceLifecycle {
	l := &v1alpha1.NamespaceLifecycle{}
	l.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
	add(l, "a", &v1alpha1.InitializerOrdering{})
	add(l, "b", &v1alpha1.InitializerOrdering{})
	add(l, "c", &v1alpha1.InitializerOrdering{After: []string{"b", "none"}})
	add(l, "d", nil)
	for _, change := range changes {
		change(l)
	}
	return l
}

func add(l *v1alpha1.NamespaceLifecycle, name string, ordering *v1alpha1.InitializerOrdering) {
	l.Spec.Plan = append(l.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name, Ordering: ordering}})
	l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
}

func done(names ...string) func(*v1alpha1.NamespaceLifecycle) {
	return func(l *v1alpha1.NamespaceLifecycle) {
		for _, name := range names {
			helper.RemovePending(l, name)
		}
	}
}

func TestActing(t *testing.T) {
	deleted := func(l *v1alpha1.NamespaceLifecycle) { l.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	failed := func(l *v1alpha1.NamespaceLifecycle) {
		l.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure}
	}
	for name, test := range map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		// acting, and what c and d wait for.
		want string
	}{
		"at the beginning": {lifecycle(), "[a b] [b] [a b c]"},
		"one is done":      {lifecycle(done("b")), "[a c] [] [a c]"},
		"the other one":    {lifecycle(done("a")), "[b] [b] [b c]"},
		"the last one":     {lifecycle(done("a", "b", "c")), "[d] [] []"},
		"all are done":     {lifecycle(done("a", "b", "c", "d")), "[] [] []"},
		"complete":         {lifecycle(func(l *v1alpha1.NamespaceLifecycle) { l.Spec.Initializers = nil }, done("a")), "[] [] []"},
		"failed":           {lifecycle(failed), "[] [b] [a b c]"},
		"being deleted":    {lifecycle(deleted), "[] [b] [a b c]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(helper.Acting(test.lifecycle), helper.WaitsFor(test.lifecycle, "c"), helper.WaitsFor(test.lifecycle, "d")); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestTurn(t *testing.T) {
	began, found := metav1.NewMicroTime(time.Unix(5, 0)), metav1.NewMicroTime(time.Unix(9, 0))
	l := lifecycle()
	l.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a", StartTime: &began}, {Name: "b", StartTime: &began, StalledTime: &found}, {Name: "c"}}
	for name, want := range map[string]string{"a": began.String() + " false", "b": began.String() + " true", "c": "<nil> false", "none": "<nil> false"} {
		if got := fmt.Sprint(helper.TurnStart(l, name), helper.IsStalled(l, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestStall(t *testing.T) {
	for name, test := range map[string]struct {
		condition metav1.Condition
		want      bool
	}{
		"stalled":      {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTurnTooLong}, true},
		"not any more": {metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTurnEnded}, false},
		"it failed":    {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFailed}, false},
	} {
		l := lifecycle()
		test.condition.Type = v1alpha1.ConditionStalled
		l.Status.Conditions = []metav1.Condition{test.condition}
		if got := helper.Stall(l); (got != nil) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := helper.Stall(lifecycle()); got != nil {
		t.Errorf("without a condition: %v", got)
	}
}

func TestCreator(t *testing.T) {
	for want, annotations := range map[string]map[string]string{
		"alice":   {v1alpha1.AnnotationCreatedBy: "alice"},
		"bob":     {v1alpha1.AnnotationCreatedBy: "portal", v1alpha1.AnnotationOnBehalfOf: "bob"},
		"kubectl": {v1alpha1.AnnotationCreatedBy: "kubectl", v1alpha1.AnnotationOnBehalfOf: ""},
		"":        {v1alpha1.AnnotationOnBehalfOf: "not stamped"},
	} {
		if got := helper.Creator(&metav1.ObjectMeta{Annotations: annotations}); got != want {
			t.Errorf("with %q: %q, want %q", annotations, got, want)
		}
	}
}

func TestValidateInitializerName(t *testing.T) {
	tests := map[string]bool{
		"alwayspullimages.kubernetes.io": true,
		"openshift.com/origin":           true,
		"a.b.c":                          true,
		"unqualified":                    false,
		"two.parts":                      false,
		"":                               false,
		"Upper.example.com":              false,
		"a..example.com":                 false,
		"example.com/":                   false,
		"/origin":                        false,
		"a b.example.com":                false,
		"example.com/a/b":                false,
	}
	for name, want := range tests {
		if problems := helper.ValidateInitializerName(name); (len(problems) == 0) != want {
			t.Errorf("ValidateInitializerName(%q) = %q", name, problems)
		}
	}
}
