/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// startOfTests is what the clock of a fixture says at first.
func startOfTests() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// withPolicy gives every planned initializer a failurePolicy and a deadline.
func withPolicy(policy v1alpha1.FailurePolicyType, seconds int32) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) {
		for i := range r.Spec.Plan {
			r.Spec.Plan[i].FailurePolicy, r.Spec.Plan[i].TimeoutSeconds = &policy, &seconds
		}
	}
}

// since says when the turn began, by the server's clock, in relation to the fixture's.
func since(offset time.Duration) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) {
		began := metav1.NewMicroTime(startOfTests().Add(offset))
		r.Spec.Initializers.TurnStartTime = &began
	}
}

func isStalled(r *v1alpha1.NamespaceLifecycle) {
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: "slow"}}
}

// TestMeasure: a deadline counts from what was seen here, and where this process saw the turn
// late, from what the server wrote and the difference that its clock may have.
func TestMeasure(t *testing.T) {
	const minute = time.Minute
	tests := map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		age       time.Duration // since it was seen
		want      turn
	}{
		"no turn":                     {aLifecycle(), time.Hour, turn{}},
		"it failed":                   {aLifecycle(pending("a"), failed), time.Hour, turn{}},
		"it is leaving":               {aLifecycle(pending("a"), leaving), time.Hour, turn{}},
		"no policy":                   {aLifecycle(pending("a")), 10 * time.Second, turn{wake: 50 * time.Second}},
		"no policy, for long":         {aLifecycle(pending("a")), minute, turn{stalled: true}},
		"before the deadline":         {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 4 * time.Second, turn{wake: time.Second}},
		"at the deadline":             {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 5 * time.Second, turn{overdue: true, wake: 55 * time.Second}},
		"long after it":               {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), minute, turn{overdue: true, stalled: true}},
		"a deadline that is far":      {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 3600)), minute, turn{stalled: true, wake: 59 * minute}},
		"the server's clock is ahead": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), since(time.Hour)), 5 * time.Second, turn{overdue: true, wake: 55 * time.Second}},
		"the server's clock is a little behind": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 30), since(-timing.MaxClockSkew)), 29 * time.Second,
			turn{wake: time.Second}},
		"it was seen late": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 3600), since(-time.Hour)), timing.MaxClockSkew,
			turn{overdue: true, stalled: true}},
		"it was seen late, a moment before": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 3600), since(-time.Hour)), timing.MaxClockSkew - time.Second,
			turn{stalled: true, wake: time.Second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := measure(test.lifecycle, startOfTests(), startOfTests().Add(test.age), minute); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := measure(aLifecycle(pending("a")), startOfTests(), startOfTests().Add(time.Hour), 0); got != (turn{}) {
		t.Errorf("nothing is reported as stalled, but %+v", got)
	}
}

// TestTurns: each turn has a separate time, also that of another lifecycle of the same name.
func TestTurns(t *testing.T) {
	seen := turns{seen: map[string]sighting{}}
	at := func(seconds int) time.Time { return startOfTests().Add(time.Duration(seconds) * time.Second) }
	another := aLifecycle(pending("b"))
	another.UID = "another"
	for step, test := range []struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		want      time.Time
	}{
		{aLifecycle(pending("a", "b")), at(0)},
		{aLifecycle(pending("a", "b")), at(0)},
		{aLifecycle(pending("b")), at(2)},
		{another, at(3)},
		{another, at(3)},
		{nil, at(5)},
		{another, at(6)},
		{aLifecycle(), at(7)},
	} {
		if got := seen.firstSeen("ns", test.lifecycle, at(step)); !got.Equal(test.want) {
			t.Errorf("step %d: seen at %s, want %s", step, got, test.want)
		}
	}
	if len(seen.seen) != 0 {
		t.Errorf("%v is not forgotten", seen.seen)
	}
}

// TestNextOfTurn: what a turn that lasts leads to.
func TestNextOfTurn(t *testing.T) {
	tests := map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		turn      turn
		want      action
	}{
		"Ignore":                       {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), turn{overdue: true, stalled: true}, skipInitializer},
		"Fail":                         {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), turn{overdue: true, stalled: true}, failInitializer},
		"before the deadline":          {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), turn{wake: 1}, nothing},
		"no policy, for long":          {aLifecycle(pending("a")), turn{stalled: true}, reportStall},
		"no policy, reported":          {aLifecycle(pending("a"), isStalled), turn{stalled: true}, nothing},
		"a former lifecycle's turn":    {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), former), turn{overdue: true}, deleteLifecycle},
		"the turn of the built-in one": {aLifecycle(pending(v1alpha1.InitializerLifecycle), participant), turn{stalled: true}, secureNamespace},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := next(state{namespace: namespace(closed), lifecycle: test.lifecycle, turn: test.turn}); got != test.want {
				t.Errorf("next is %s, want %s", got, test.want)
			}
		})
	}
	if got := next(state{namespace: namespace(closed, deleting), lifecycle: aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), leaving, held("p")), turn: turn{overdue: true}}); got != nothing {
		t.Errorf("of a namespace that is being deleted, next is %s", got)
	}
}

// TestDeadlines: the timer brings the name back, and the lifecycle says what happened to the
// initializer. The clock is the test's.
func TestDeadlines(t *testing.T) {
	tests := map[string]struct {
		policy  v1alpha1.FailurePolicyType
		skipped string
		pending string
		result  string
	}{
		"Ignore": {v1alpha1.Ignore, "[a.example.com]", "[b.example.com]", ""},
		"Fail":   {v1alpha1.Fail, "[]", "[a.example.com b.example.com]", "it was not done within 5 seconds, and its failurePolicy is Fail"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com", "b.example.com"), withPolicy(test.policy, 5), since(0)))
			clock := f.Clock.(*testingclock.FakeClock)
			if err := f.reconcile(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			clock.Step(5*time.Second - time.Millisecond)
			if err := f.reconcile(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if f.queue.Len() != 0 || slices.Contains(f.writes(), "update namespacelifecycles/initialize") {
				t.Errorf("before the deadline: %d names are due, written: %v", f.queue.Len(), f.writes())
			}
			clock.Step(time.Millisecond)
			eventually(t, "the timer brings the name back", func() bool { return f.queue.Len() == 1 })
			if err := f.reconcile(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			lifecycle, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, entry := range lifecycle.Spec.Initializers.Pending {
				names = append(names, entry.Name)
			}
			var result string
			if lifecycle.Spec.Initializers.Result != nil {
				result = lifecycle.Spec.Initializers.Result.Message
			}
			if fmt.Sprint(lifecycle.Spec.Skipped) != test.skipped || fmt.Sprint(names) != test.pending || result != test.result {
				t.Errorf("skipped %v, pending %v, result %q", lifecycle.Spec.Skipped, names, result)
			}
		})
	}
}

// TestStall: the lifecycle, the namespace and an event say that a turn lasts for long.
func TestStall(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com"), since(0)))
	f.StalledAfter = time.Minute
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	f.Clock.(*testingclock.FakeClock).Step(time.Minute)
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	const want = `the turn of initializer "a.example.com" has lasted longer than 1m0s, since 2026-01-01T00:00:00Z`
	if event := <-f.events.Events; !strings.HasPrefix(event, "Warning InitializerStalled "+want) {
		t.Errorf("event %q", event)
	}
	lifecycle, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.refresh(t, lifecycle)
	for range 2 { // the second time, everything is said
		if err := f.reconcile(t.Context(), "ns"); err != nil {
			t.Fatal(err)
		}
	}
	if said := f.condition(t, v1alpha1.ConditionStalled); !strings.Contains(said, want) {
		t.Errorf("the namespace says %q", said)
	}
	if len(f.events.Events) != 0 {
		t.Errorf("another event: %q", <-f.events.Events)
	}
	// The turn ends, which the server says.
	meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionStalled).Status = metav1.ConditionFalse
	lifecycle.Spec.Initializers.Pending[0].Name, lifecycle.Spec.Plan[0].Name = "b.example.com", "b.example.com"
	f.refresh(t, lifecycle)
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(live.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionStalled })
	if live.Status.Conditions[i].Status != corev1.ConditionFalse {
		t.Errorf("conditions: %v", live.Status.Conditions)
	}
}

// refresh stores a lifecycle, and brings the caches up to date.
func (f *fixture) refresh(t *testing.T, lifecycle *v1alpha1.NamespaceLifecycle) {
	t.Helper()
	if _, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Update(context.Background(), lifecycle, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	live, err := f.core.CoreV1().Namespaces().Get(context.Background(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.cache(live, lifecycle)
}

// TestTransitions: each step of an initializer is an event on the namespace, once.
func TestTransitions(t *testing.T) {
	start := metav1.NewMicroTime(startOfTests())
	end := metav1.NewMicroTime(startOfTests().Add(1500 * time.Millisecond))
	lifecycle := func(uid string, entries ...v1alpha1.InitializerStatus) *v1alpha1.NamespaceLifecycle {
		r := aLifecycle()
		r.UID, r.Status.Initializers = types.UID(uid), entries
		return r
	}
	entry := func(name string, state v1alpha1.InitializerState) v1alpha1.InitializerStatus {
		return v1alpha1.InitializerStatus{Name: name, State: state, StartTime: &start, EndTime: &end, LastActor: "who", Message: "why"}
	}
	tests := map[string]struct {
		old, updated *v1alpha1.NamespaceLifecycle
		want         []event
	}{
		"a new lifecycle": {nil, lifecycle("1", entry("a", "Running"), entry("b", "Waiting")),
			[]event{{"Normal", "InitializerRunning", `Initializer "a" has its turn`}}},
		"a turn ends": {lifecycle("1", entry("a", "Running"), entry("b", "Waiting")), lifecycle("1", entry("a", "Done"), entry("b", "Running")),
			[]event{{"Normal", "InitializerDone", `Initializer "a" is done after 1.5s (user "who")`}, {"Normal", "InitializerRunning", `Initializer "b" has its turn`}}},
		"one is skipped": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Skipped")),
			[]event{{"Warning", "InitializerSkipped", `Initializer "a" was skipped by user "who": why`}}},
		"one fails": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Failed")),
			[]event{{"Warning", "InitializerFailed", `Initializer "a" failed (user "who"): why`}}},
		"nothing happens": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Running")), nil},
		"another lifecycle of the same name": {lifecycle("1", entry("a", "Running")), lifecycle("2", entry("a", "Running")),
			[]event{{"Normal", "InitializerRunning", `Initializer "a" has its turn`}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, transitions(test.old, test.updated), cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
