/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
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
		for _, name := range helper.CurrentInitializers(r) {
			i := slices.Index(helper.Pending(r), name)
			r.Spec.Initializers.Pending[i].TurnStartTime = &began
		}
	}
}

// aWhile is when a turn began that is not short, by the server's clock.
const aWhile = -timing.MaxClockSkew - 2*reportWaitAfter

// TestShortTurn: a turn is reported once it is not short: by the conditions of the namespace, and by one event.
func TestShortTurn(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com")))
	reconcile := func(writes, events int) {
		t.Helper()
		if err := f.reconcile(t.Context(), "ns"); err != nil {
			t.Fatal(err)
		}
		live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.cache(live, aLifecycle(pending("a.example.com")))
		if got := f.writes(); len(got) != writes || len(f.events.Events) != events {
			t.Errorf("written: %v, %d events, want %d and %d", got, len(f.events.Events), writes, events)
		}
	}
	reconcile(0, 0)
	f.Clock.(*testingclock.FakeClock).Step(reportWaitAfter - 1)
	reconcile(0, 0)
	f.Clock.(*testingclock.FakeClock).Step(1)
	reconcile(1, 1)
	reconcile(1, 1)
	if got := <-f.events.Events; got != `Normal InitializerRunning Initializer "a.example.com" has its turn` {
		t.Errorf("event %q", got)
	}
}

// TestBusyInitializer: while an initializer ends turns in other namespaces, its turn is not reported.
func TestBusyInitializer(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com")))
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	f.Clock.(*testingclock.FakeClock).Step(reportWaitAfter)
	elsewhere := func(end *metav1.MicroTime) *v1alpha1.NamespaceLifecycle {
		another := aLifecycle()
		another.Name = "another"
		another.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a.example.com", State: v1alpha1.InitializerRunning, StartTime: new(metav1.NowMicro()), EndTime: end}}
		return another
	}
	f.lifecycleUpdated(elsewhere(nil), elsewhere(new(metav1.NowMicro())))
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	if len(f.writes()) != 0 || len(f.events.Events) != 0 {
		t.Errorf("written: %v, %d events", f.writes(), len(f.events.Events))
	}
	f.running(t, "a.example.com")
}

// inParallel lets every planned initializer act at the same time.
func inParallel(r *v1alpha1.NamespaceLifecycle) {
	for i := range r.Spec.Plan {
		r.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
}

// stalls is the condition Stalled, which names an initializer.
func stalls(name string) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) {
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: strconv.Quote(name) + " is slow"}}
	}
}

// TestMeasure: a deadline counts from what was seen here, and where this process saw the turn
// late, from what the server wrote and the difference that its clock may have.
func TestMeasure(t *testing.T) {
	const minute = time.Minute
	a, ab := []string{"a"}, []string{"a", "b"}
	ends := func(age time.Duration) map[string]time.Time {
		return map[string]time.Time{"a": startOfTests().Add(age)}
	}
	tests := map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		age       time.Duration // since it was seen
		want      timers
		ends      map[string]time.Time
	}{
		"no turn":                     {aLifecycle(), time.Hour, timers{}, nil},
		"it failed":                   {aLifecycle(pending("a"), failed), time.Hour, timers{}, nil},
		"it is leaving":               {aLifecycle(pending("a"), leaving), time.Hour, timers{}, nil},
		"no policy":                   {aLifecycle(pending("a")), 10 * time.Second, timers{long: a, wake: 50 * time.Second}, nil},
		"no policy, for long":         {aLifecycle(pending("a")), minute, timers{long: a, stalled: a}, nil},
		"before the deadline":         {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 4 * time.Second, timers{long: a, wake: time.Second}, nil},
		"at the deadline":             {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 5 * time.Second, timers{long: a, overdue: a, wake: 55 * time.Second}, nil},
		"long after it":               {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), minute, timers{long: a, overdue: a, stalled: a}, nil},
		"a deadline that is far":      {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 3600)), minute, timers{long: a, stalled: a, wake: 59 * minute}, nil},
		"the server's clock is ahead": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), since(time.Hour)), 5 * time.Second, timers{long: a, overdue: a, wake: 55 * time.Second}, nil},
		"the server's clock is a little behind": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 30), since(-timing.MaxClockSkew)), 29 * time.Second,
			timers{long: a, wake: time.Second}, nil},
		"it was seen late": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 3600), since(-time.Hour)), timing.MaxClockSkew,
			timers{long: a, overdue: a, stalled: a}, nil},
		"it was seen late, a moment before": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 3600), since(-time.Hour)), timing.MaxClockSkew - time.Second,
			timers{long: a, stalled: a, wake: time.Second}, nil},
		"one after the other":   {aLifecycle(pending("a", "b"), withPolicy(v1alpha1.Ignore, 5)), minute, timers{long: a, overdue: a, stalled: a}, nil},
		"at the same time":      {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 5)), minute, timers{long: ab, overdue: ab, stalled: ab}, nil},
		"the earliest deadline": {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 30), soonest("b", 5)), 4 * time.Second, timers{long: ab, wake: time.Second}, nil},
		"one of two deadlines": {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 30), soonest("b", 5)), 5 * time.Second,
			timers{long: ab, overdue: []string{"b"}, wake: 25 * time.Second}, nil},
		"two that the server began at different times": {aLifecycle(pending("a"), since(-time.Hour), pending("b"), inParallel), 0,
			timers{long: a, stalled: a, wake: reportWaitAfter}, nil},
		"it works elsewhere":            {aLifecycle(pending("a")), 5 * time.Second, timers{wake: reportWaitAfter}, ends(5 * time.Second)},
		"it worked elsewhere":           {aLifecycle(pending("a")), 5 * time.Second, timers{long: a, wake: 55 * time.Second}, ends(5*time.Second - reportWaitAfter)},
		"it works elsewhere, for long":  {aLifecycle(pending("a")), reportWaitInAnyCase - 1, timers{wake: 1}, ends(reportWaitInAnyCase - 1)},
		"it works elsewhere, as always": {aLifecycle(pending("a")), reportWaitInAnyCase, timers{long: a, wake: minute - reportWaitInAnyCase}, ends(reportWaitInAnyCase)},
		"another one works elsewhere":   {aLifecycle(pending("b")), reportWaitAfter, timers{long: []string{"b"}, wake: minute - reportWaitAfter}, ends(reportWaitAfter)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := map[string]time.Time{"a": startOfTests(), "b": startOfTests()}
			got := measure(test.lifecycle, seen, test.ends, startOfTests().Add(test.age), minute)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(timers{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	got := measure(aLifecycle(pending("a")), map[string]time.Time{"a": startOfTests()}, nil, startOfTests().Add(time.Hour), 0)
	if diff := cmp.Diff(timers{long: a}, got, cmp.AllowUnexported(timers{})); diff != "" {
		t.Errorf("nothing is reported as stalled (-want +got):\n%s", diff)
	}
}

// soonest gives one planned initializer a separate deadline.
func soonest(name string, seconds int32) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) { helper.Planned(r, name).TimeoutSeconds = &seconds }
}

// TestTurns: each turn has a separate time, also that of another lifecycle of the same name.
func TestTurns(t *testing.T) {
	seen := turns{seen: map[string]sightings{}, ends: map[string]time.Time{}}
	at := func(seconds int) time.Time { return startOfTests().Add(time.Duration(seconds) * time.Second) }
	another := aLifecycle(pending("b"))
	another.UID = "another"
	type times map[string]time.Time
	for step, test := range []struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		want      times
	}{
		{aLifecycle(pending("a", "b")), times{"a": at(0)}},
		{aLifecycle(pending("a", "b")), times{"a": at(0)}},
		{aLifecycle(pending("b")), times{"b": at(2)}},
		{another, times{"b": at(3)}},
		{another, times{"b": at(3)}},
		{nil, nil},
		{another, times{"b": at(6)}},
		{aLifecycle(), nil},
		{aLifecycle(pending("a", "b"), inParallel), times{"a": at(8), "b": at(8)}},
		{aLifecycle(pending("b", "c"), inParallel), times{"b": at(8), "c": at(9)}},
		{nil, nil},
	} {
		if diff := cmp.Diff(test.want, times(seen.firstSeen("ns", test.lifecycle, at(step)))); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
	}
	if len(seen.seen) != 0 {
		t.Errorf("%v is not forgotten", seen.seen)
	}
}

// TestAnnounced: the end of a turn is known to be announced if its beginning was, until it is recorded.
func TestAnnounced(t *testing.T) {
	all := turns{seen: map[string]sightings{}, ends: map[string]time.Time{}}
	done := func(names ...string) (entries []v1alpha1.InitializerStatus) {
		for _, name := range names {
			entries = append(entries, v1alpha1.InitializerStatus{Name: name})
		}
		return entries
	}
	another := aLifecycle(pending("a"))
	another.UID = "another"
	now := startOfTests()
	all.firstSeen("ns", aLifecycle(pending("a", "b"), inParallel), now)
	if got := all.announce("ns", aLifecycle().UID, []string{"a"}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("announced: %v", got)
	}
	all.firstSeen("ns", aLifecycle(), now) // before the handler of the watch
	if got := all.end(another, done("a"), now); got.Len() > 0 {
		t.Errorf("the turn of another lifecycle was announced: %v", got)
	}
	for _, want := range [][]string{{"a"}, {}} {
		if got := sets.List(all.end(aLifecycle(), done("a", "b"), now)); !slices.Equal(got, want) {
			t.Errorf("announced: %v, want %v", got, want)
		}
	}
	all.firstSeen("ns", aLifecycle(), now)
	all.end(aLifecycle(), done("c"), now.Add(2*reportWaitAfter))
	if got := slices.Sorted(maps.Keys(all.lastEnds())); len(all.seen) != 0 || !slices.Equal(got, []string{"c"}) {
		t.Errorf("%v and the ends of %v are not forgotten", all.seen, got)
	}
}

// TestNextOfTurn: what a turn that lasts leads to.
func TestNextOfTurn(t *testing.T) {
	a, ab := []string{"a"}, []string{"a", "b"}
	tests := map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		timers    timers
		want      action
	}{
		"Ignore":              {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), timers{overdue: a, stalled: a}, skipInitializer},
		"Fail":                {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), timers{overdue: a, stalled: a}, failInitializer},
		"before the deadline": {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), timers{wake: 1}, nothing},
		"Ignore and Fail at the same time": {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 5), func(r *v1alpha1.NamespaceLifecycle) {
			helper.Planned(r, "b").FailurePolicy = new(v1alpha1.Fail)
		}), timers{overdue: ab}, failInitializer},
		"no policy, for long":          {aLifecycle(pending("a")), timers{stalled: a}, reportStall},
		"no policy, reported":          {aLifecycle(pending("a"), stalls("a")), timers{stalled: a}, nothing},
		"reported by another process":  {aLifecycle(pending("a"), stalls("a")), timers{}, nothing},
		"another one stalls":           {aLifecycle(pending("a", "b"), inParallel, stalls("a")), timers{stalled: ab}, reportStall},
		"the stalled one has finished": {aLifecycle(pending("a", "b"), inParallel, stalls("b"), func(r *v1alpha1.NamespaceLifecycle) { helper.RemovePending(r, "b") }), timers{}, reportStall},
		"a former lifecycle's turn":    {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), former), timers{overdue: a}, deleteLifecycle},
		"the turn of the built-in one": {aLifecycle(pending(v1alpha1.InitializerLifecycle), participant), timers{stalled: []string{v1alpha1.InitializerLifecycle}}, secureNamespace},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := next(state{namespace: namespace(closed), lifecycle: test.lifecycle, timers: test.timers}); got != test.want {
				t.Errorf("next is %s, want %s", got, test.want)
			}
		})
	}
	if got := next(state{namespace: namespace(closed, deleting), lifecycle: aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), leaving, held("p")), timers: timers{overdue: a}}); got != nothing {
		t.Errorf("of a namespace that is being deleted, next is %s", got)
	}
}

// TestDeadlines: the timer brings the name back, and the lifecycle says what happened to the
// initializer. The clock is the test's.
func TestDeadlines(t *testing.T) {
	const missed = "it was not done within 5 seconds, and its failurePolicy is Fail"
	serial := func(*v1alpha1.NamespaceLifecycle) {}
	tests := map[string]struct {
		policy  v1alpha1.FailurePolicyType
		order   lifecycleOption
		skipped string
		pending string
		result  string
	}{
		"Ignore":           {v1alpha1.Ignore, serial, "[a.example.com]", "[b.example.com c.example.com]", ""},
		"Fail":             {v1alpha1.Fail, serial, "[]", "[a.example.com b.example.com c.example.com]", "a.example.com: " + missed},
		"Ignore, parallel": {v1alpha1.Ignore, inParallel, "[a.example.com b.example.com]", "[c.example.com]", ""},
		"Fail, parallel":   {v1alpha1.Fail, inParallel, "[]", "[a.example.com b.example.com c.example.com]", "a.example.com: " + missed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com", "b.example.com", "c.example.com"), withPolicy(test.policy, 5),
				soonest("c.example.com", 30), test.order, since(0)))
			clock := f.Clock.(*testingclock.FakeClock)
			if err := f.reconcile(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			clock.Step(reportWaitAfter)
			eventually(t, "the timer brings the name back", func() bool { return f.queue.Len() == 1 })
			due, _ := f.queue.Get()
			f.queue.Done(due)
			for _, later := range []time.Duration{0, 5*time.Second - reportWaitAfter - time.Millisecond} {
				clock.Step(later)
				if err := f.reconcile(t.Context(), due); err != nil {
					t.Fatal(err)
				}
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
				result = lifecycle.Spec.Initializers.FailedInitializer + ": " + lifecycle.Spec.Initializers.Result.Message
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
	f.running(t, "a.example.com")
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
	f.running(t, "b.example.com")
	live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(live.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionStalled })
	if live.Status.Conditions[i].Status != corev1.ConditionFalse {
		t.Errorf("conditions: %v", live.Status.Conditions)
	}
}

// TestStallsAtTheSameTime: one event for each stalled initializer, and one condition that names those that
// still have their turn.
func TestStallsAtTheSameTime(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com"), since(0), pending("b.example.com"), inParallel))
	f.StalledAfter = time.Minute
	clock := f.Clock.(*testingclock.FakeClock)
	reconcile := func() *v1alpha1.NamespaceLifecycle {
		t.Helper()
		if err := f.reconcile(t.Context(), "ns"); err != nil {
			t.Fatal(err)
		}
		lifecycle, err := f.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), "ns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.refresh(t, lifecycle)
		return lifecycle
	}
	reconcile()
	f.running(t, "a.example.com", "b.example.com")
	clock.Step(time.Minute)
	for range 3 { // the second time, the condition is written, and the third time the namespace reports it
		reconcile()
	}
	for _, name := range []string{"a.example.com", "b.example.com"} {
		if event := <-f.events.Events; !strings.HasPrefix(event, fmt.Sprintf("Warning InitializerStalled the turn of initializer %q has lasted longer than 1m0s", name)) {
			t.Errorf("event %q", event)
		}
	}
	const both = `the turn of initializer "a.example.com" has lasted longer than 1m0s, since 2026-01-01T00:00:00Z; and that of initializer "b.example.com": check that each runs`
	if said := f.condition(t, v1alpha1.ConditionStalled); !strings.Contains(said, both) {
		t.Errorf("the namespace says %q", said)
	}
	lifecycle := reconcile()
	helper.RemovePending(lifecycle, "a.example.com")
	f.refresh(t, lifecycle)
	for range 2 {
		lifecycle = reconcile()
	}
	if got := helper.Stalled(lifecycle); !slices.Equal(got, []string{"b.example.com"}) {
		t.Errorf("the condition names %q", got)
	}
	if len(f.events.Events) != 0 {
		t.Errorf("another event: %q", <-f.events.Events)
	}
}

// running lets current turns last until they are not short, and checks their events.
func (f *fixture) running(t *testing.T, initializers ...string) {
	t.Helper()
	f.Clock.(*testingclock.FakeClock).Step(reportWaitAfter)
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Namespaces.Informer().GetStore().Update(live); err != nil {
		t.Fatal(err)
	}
	for _, name := range initializers {
		if event := <-f.events.Events; event != fmt.Sprintf("Normal InitializerRunning Initializer %q has its turn", name) {
			t.Errorf("event %q", event)
		}
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
	degraded := lifecycle("1")
	degraded.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Message: "an expression failed"}}
	tests := map[string]struct {
		old, updated *v1alpha1.NamespaceLifecycle
		want         []event
	}{
		"a new lifecycle": {nil, lifecycle("1", entry("a", "Running"), entry("b", "Waiting")), nil},
		"a new lifecycle with a degraded plan": {nil, degraded,
			[]event{{"Warning", "PlanDegraded", "an expression failed"}}},
		"a degraded plan is reported once": {degraded, degraded, nil},
		"a turn ends": {lifecycle("1", entry("a", "Running"), entry("b", "Waiting")), lifecycle("1", entry("a", "Done"), entry("b", "Running")),
			[]event{{"Normal", "InitializerDone", `Initializer "a" is done after 1.5s (user "who")`}}},
		"a turn ends that was not announced": {lifecycle("1", entry("b", "Running")), lifecycle("1", entry("b", "Done")), nil},
		"one is skipped": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Skipped")),
			[]event{{"Warning", "InitializerSkipped", `Initializer "a" was skipped by user "who": why`}}},
		"one fails": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Failed")),
			[]event{{"Warning", "InitializerFailed", `Initializer "a" failed (user "who"): why`}}},
		"nothing happens": {lifecycle("1", entry("a", "Running")), lifecycle("1", entry("a", "Running")), nil},
		"another lifecycle of the same name": {lifecycle("1", entry("a", "Done")), lifecycle("2", entry("a", "Skipped")),
			[]event{{"Warning", "InitializerSkipped", `Initializer "a" was skipped by user "who": why`}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, transitions(test.old, test.updated, sets.New("a")), cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
