/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// parallelPlan returns a record in which all act immediately, but for last, which acts after them.
func parallelPlan(last string, names ...string) *nsinit.NamespaceLifecycle {
	record := planOf(append(names, last)...)
	for i := range names {
		record.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
	return record
}

func messageOf(record *nsinit.NamespaceLifecycle, condition string) string {
	return meta.FindStatusCondition(record.Status.Conditions, condition).Message
}

// TestParallelTurns: each turn begins and ends on its own, and has its own deadline.
func TestParallelTurns(t *testing.T) {
	record := parallelPlan("c", "a", "b")
	ignore, seconds := v1alpha1.Ignore, int32(7)
	for i := range record.Spec.Plan {
		record.Spec.Plan[i].FailurePolicy, record.Spec.Plan[i].TimeoutSeconds = &ignore, &seconds
	}
	begin(record, at(0), "controller")
	change(record, at(3), "hook-b", "a", "c")
	if currentOf(record) != "a" {
		t.Errorf("after b, it is the turn of %q", currentOf(record))
	}
	change(record, at(5), "hook-a", "c")
	want := []v1alpha1.InitializerStatus{
		{Name: "a", State: v1alpha1.InitializerDone, StartTime: micro(0), EndTime: micro(5), Deadline: micro(7), LastActor: "hook-a"},
		{Name: "b", State: v1alpha1.InitializerDone, StartTime: micro(0), EndTime: micro(3), Deadline: micro(7), LastActor: "hook-b"},
		{Name: "c", State: v1alpha1.InitializerRunning, StartTime: micro(5), Deadline: micro(12)},
	}
	if diff := cmp.Diff(want, record.Status.Initializers); diff != "" || currentOf(record) != "c" {
		t.Errorf("it is the turn of %q, initializers (-want +got):\n%s", currentOf(record), diff)
	}
}

// TestWaitingMessage: the message names several initializers, their deadlines and reports, and stays readable.
func TestWaitingMessage(t *testing.T) {
	const since = " since 2026-01-01T00:00:00Z"
	fail, seconds := v1alpha1.Fail, int32(60)
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprint("i", i))
	}
	for name, test := range map[string]struct {
		record *nsinit.NamespaceLifecycle
		change func(*nsinit.NamespaceLifecycle)
		want   string
	}{
		"two":  {record: parallelPlan("c", "a", "b"), want: `waiting for initializers "a", "b" (1 of 3)` + since},
		"many": {record: parallelPlan("c", many...), want: `waiting for initializers "i0", "i1", "i2", "i3", "i4" and 4 more (1 of 10)` + since},
		"after one is done": {record: parallelPlan("d", "a", "b", "c"), change: func(r *nsinit.NamespaceLifecycle) { change(r, at(1), "b", "a", "c", "d") },
			want: `waiting for initializers "a", "c" (2 of 4)` + since},
		"the built-in one is done": {record: parallelPlan("c", v1alpha1.InitializerLifecycle, "a", "b"), change: func(r *nsinit.NamespaceLifecycle) { change(r, at(0), "", "a", "b", "c") },
			want: `waiting for initializers "a", "b" (1 of 3)` + since},
		"a deadline and reports": {record: parallelPlan("d", "a", "b", "c"), change: func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Plan[0].FailurePolicy, r.Spec.Plan[0].TimeoutSeconds = &fail, &seconds
			begin(r, at(0), "")
			r.Status.Initializers[0].Message, r.Status.Initializers[2].Message = "zone not\nready", strings.Repeat("é", maxReport)
			settlePhase(r, at(1))
		}, want: `waiting for initializers "a", "b", "c" (1 of 4)` + since + `; "a" until 2026-01-01T00:01:00Z, when the initialization fails and the namespace is deleted: "zone not ready"; ` +
			`"c": "` + strings.Repeat("é", maxReport/2-2) + `..."`},
		"the oldest turn": {record: parallelPlan("d", "a", "b"), change: func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Plan[0].Ordering.After, r.Spec.Plan[2].Ordering = []string{"d"}, &v1alpha1.InitializerOrdering{}
			begin(r, at(0), "")
			change(r, at(5), "d", "a", "b")
		}, want: `waiting for initializers "a", "b" (2 of 3)` + since},
	} {
		t.Run(name, func(t *testing.T) {
			begin(test.record, at(0), "")
			if test.change != nil {
				test.change(test.record)
			}
			if got := messageOf(test.record, v1alpha1.ConditionInitializing); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestParallelFailure: the message names the initializer that failed, which may be any current one.
func TestParallelFailure(t *testing.T) {
	record := parallelPlan("c", "a", "b")
	begin(record, at(0), "")
	record.Spec.Initializers.Result, record.Spec.Initializers.FailedInitializer = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}, "b"
	settle(record, at(1), "hook-b")
	want := []v1alpha1.InitializerStatus{
		{Name: "a", State: v1alpha1.InitializerRunning, StartTime: micro(0)},
		{Name: "b", State: v1alpha1.InitializerFailed, StartTime: micro(0), EndTime: micro(1), Message: "no", LastActor: "hook-b"},
		{Name: "c", State: v1alpha1.InitializerWaiting},
	}
	if diff := cmp.Diff(want, record.Status.Initializers); diff != "" || currentOf(record) != "" {
		t.Errorf("it is the turn of %q, initializers (-want +got):\n%s", currentOf(record), diff)
	}
	if got := messageOf(record, v1alpha1.ConditionReady); got != `initializer "b" failed: no; nsinit deletes the namespace` {
		t.Error(got)
	}
	record.DeletionTimestamp = &metav1.Time{Time: at(2)}
	settle(record, at(2), "")
	if got := messageOf(record, v1alpha1.ConditionReady); got != `the namespace is being deleted: initializer "b" failed: no` {
		t.Error(got)
	}
}

// TestParallelStall: the condition stays while one of the stalled initializers has its turn, and names no other one.
func TestParallelStall(t *testing.T) {
	record := parallelPlan("d", "a", "b", "c")
	begin(record, at(0), "")
	record.Status.Initializers[0].StalledTime, record.Status.Initializers[1].StalledTime = micro(1), micro(1)
	for _, step := range []struct {
		pending []string
		stalled bool
		message string
	}{
		{[]string{"a", "b", "d"}, true, `"a" has lasted since 2026-01-01T00:00:00Z; and that of initializer "b" since 2026-01-01T00:00:00Z: check that each runs`},
		{[]string{"b", "d"}, true, `"b" has lasted since 2026-01-01T00:00:00Z: check that it runs`},
		{[]string{"d"}, false, "no initializer or participant is stalled any more"},
	} {
		change(record, at(1), "", step.pending...)
		if got := meta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.ConditionStalled); got != step.stalled {
			t.Errorf("while %q are pending: stalled is %t", step.pending, got)
		}
		if got := messageOf(record, v1alpha1.ConditionStalled); !strings.Contains(got, step.message) {
			t.Errorf("while %q are pending: %s", step.pending, got)
		}
	}
}

// TestFailedAtCreation: a NamespaceLifecycle that is created with a failure has the name of the initializer that failed: the only one that
// has its turn, or the one that its creator names.
func TestFailedAtCreation(t *testing.T) {
	kind := NewKind(nil, clock.RealClock{})
	for name, test := range map[string]struct {
		record *nsinit.NamespaceLifecycle
		want   string
		err    bool
	}{
		"one":     {planOf("a", "b"), "a", false},
		"several": {parallelPlan("c", "a", "b"), "", true},
	} {
		test.record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
		kind.Create(t.Context(), test.record)
		if got := test.record.Spec.Initializers.FailedInitializer; got != test.want {
			t.Errorf("%s: %q failed, want %q", name, got, test.want)
		}
		errs := kind.Validate(test.record, nil)
		if refused := strings.Contains(fmt.Sprint(errs), "spec.initializers.failedInitializer: Required value"); refused != test.err {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
