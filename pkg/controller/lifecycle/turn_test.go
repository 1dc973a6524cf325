/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/timing"
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
			helper.Entry(r, name).StartTime = &began
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

// inParallel lets every planned initializer act at the same time.
func inParallel(r *v1alpha1.NamespaceLifecycle) {
	for i := range r.Spec.Plan {
		r.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
}

// stalls marks an initializer as stalled.
func stalls(name string) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) { helper.Entry(r, name).StalledTime = new(metav1.NowMicro()) }
}

// TestMeasure: a deadline counts the time in which this process saw the turn and could read lifecycles. A report counts also from what the
// server wrote and the difference that its clock may have.
func TestMeasure(t *testing.T) {
	const minute = time.Minute
	a, ab := []string{"a"}, []string{"a", "b"}
	tests := map[string]struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		age       time.Duration // since it was seen
		want      timers
	}{
		"no turn":                     {aLifecycle(), time.Hour, timers{}},
		"it failed":                   {aLifecycle(pending("a"), failed), time.Hour, timers{}},
		"it is leaving":               {aLifecycle(pending("a"), leaving), time.Hour, timers{}},
		"no policy":                   {aLifecycle(pending("a")), 10 * time.Second, timers{long: a, wake: 50 * time.Second}},
		"no policy, for long":         {aLifecycle(pending("a")), minute, timers{long: a, stalled: a}},
		"before the deadline":         {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 4 * time.Second, timers{long: a, wake: time.Second}},
		"at the deadline":             {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5)), 5 * time.Second, timers{long: a, overdue: a, wake: 55 * time.Second}},
		"long after it":               {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 5)), minute, timers{long: a, overdue: a, stalled: a}},
		"a deadline that is far":      {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 3600)), minute, timers{long: a, stalled: a, wake: 59 * minute}},
		"the server's clock is ahead": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 5), since(time.Hour)), 5 * time.Second, timers{long: a, overdue: a, wake: 55 * time.Second}},
		"the server's clock is a little behind": {aLifecycle(pending("a"), withPolicy(v1alpha1.Ignore, 30), since(-timing.MaxClockSkew)), 29 * time.Second,
			timers{long: a, wake: time.Second}},
		"it was seen late": {aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, 30), since(-time.Hour)), 29 * time.Second,
			timers{long: a, stalled: a, wake: time.Second}},
		"one after the other":   {aLifecycle(pending("a", "b"), withPolicy(v1alpha1.Ignore, 5)), minute, timers{long: a, overdue: a, stalled: a}},
		"at the same time":      {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 5)), minute, timers{long: ab, overdue: ab, stalled: ab}},
		"the earliest deadline": {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 30), soonest("b", 5)), 4 * time.Second, timers{long: ab, wake: time.Second}},
		"one of two deadlines": {aLifecycle(pending("a", "b"), inParallel, withPolicy(v1alpha1.Ignore, 30), soonest("b", 5)), 5 * time.Second,
			timers{long: ab, overdue: []string{"b"}, wake: 25 * time.Second}},
		"two that the server began at different times": {aLifecycle(pending("a"), since(-time.Hour), pending("b"), inParallel), 0,
			timers{long: a, stalled: a, wake: reportWaitAfter}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := map[string]sighting{"a": {at: startOfTests()}, "b": {at: startOfTests()}}
			got := measureTurns(test.lifecycle, seen, outages{}, startOfTests().Add(test.age), minute)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(timers{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	deletedAt := func(r *v1alpha1.NamespaceLifecycle) { r.DeletionTimestamp = &metav1.Time{Time: startOfTests()} }
	for name, test := range map[string]struct {
		lifecycle    *v1alpha1.NamespaceLifecycle
		age, stalled time.Duration
		want         timers
	}{
		"a participant":                    {aLifecycle(held("a", "kubernetes"), deletedAt), 50 * time.Second, minute, timers{wake: 10 * time.Second}},
		"a participant, for long":          {aLifecycle(held("a", "kubernetes", "b"), deletedAt), minute, minute, timers{stalled: ab}},
		"a participant, without a report":  {aLifecycle(held("a"), deletedAt), minute, 0, timers{}},
		"no participant is left":           {aLifecycle(held("kubernetes"), deletedAt), minute, minute, timers{}},
		"the participant of a live object": {aLifecycle(held("a")), minute, minute, timers{}},
	} {
		got := measureTurns(test.lifecycle, nil, outages{}, startOfTests().Add(test.age), test.stalled)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(timers{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got := measureTurns(aLifecycle(pending("a")), map[string]sighting{"a": {at: startOfTests()}}, outages{}, startOfTests().Add(time.Hour), 0)
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
	seen := turns{seen: map[string]sightings{}}
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
		var got times
		for name, turn := range seen.firstSeen("ns", test.lifecycle, acting(test.lifecycle), at(step)) {
			if got == nil {
				got = times{}
			}
			got[name] = turn.at
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
	}
	if len(seen.seen) != 0 {
		t.Errorf("%v is not forgotten", seen.seen)
	}
}

// acting returns the initializers that have their turn.
func acting(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	if lifecycle == nil {
		return nil
	}
	return helper.Acting(lifecycle)
}

// TestAnnounced: each turn of a lifecycle is announced once.
func TestAnnounced(t *testing.T) {
	all, now := turns{seen: map[string]sightings{}}, startOfTests()
	another := aLifecycle(pending("a"))
	another.UID = "another"
	for step, test := range []struct {
		lifecycle *v1alpha1.NamespaceLifecycle
		announce  []string
		want      []string
	}{
		{aLifecycle(pending("a", "b"), inParallel), []string{"a"}, []string{"a"}},
		{aLifecycle(pending("a", "b"), inParallel), []string{"a", "b"}, []string{"b"}},
		{aLifecycle(pending("b")), []string{"b"}, nil},
		{another, []string{"a"}, []string{"a"}},
		{aLifecycle(pending("a")), nil, nil},
	} {
		all.firstSeen("ns", test.lifecycle, acting(test.lifecycle), now)
		if got := all.announce(test.lifecycle, test.announce); !slices.Equal(got, test.want) {
			t.Errorf("step %d: announced %v, want %v", step, got, test.want)
		}
	}
	if got := all.announce(another, []string{"a"}); got != nil {
		t.Errorf("the turn of another lifecycle was announced: %v", got)
	}
}

// TestLateTurn: an old version of a lifecycle, which still shows a turn that is over, leads to no event, and leaves no trace.
func TestLateTurn(t *testing.T) {
	old := aLifecycle(pending("a", "b"), inParallel)
	newer := old.DeepCopy()
	newer.Status.Initializers[0].EndTime = new(metav1.NowMicro())
	f := newFixture(t, namespace(closed), newer)
	s := state{lifecycle: old, timers: timers{long: []string{"a", "b"}}}
	f.turns.firstSeen("ns", old, acting(old), startOfTests())
	f.announce(s)
	if event := <-f.events.Events; len(f.events.Events) > 0 || event != `Normal InitializerRunning Initializer "b" has its turn` {
		t.Errorf("%q, and %d events", event, len(f.events.Events))
	}
	f.turns.firstSeen("ns", aLifecycle(), nil, startOfTests())
	if len(f.turns.seen) != 0 {
		t.Errorf("%v is not forgotten", f.turns.seen)
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

// TestOutage: the time of an outage does not count for a deadline, and an initializer has a while after it. One failure is no outage.
func TestOutage(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		timeout int32
		// failures are when requests failed, after the turn was first seen.
		failures []time.Duration
		want     time.Duration
	}{
		"none":                      {30, nil, 30 * second},
		"one failure":               {30, []time.Duration{29 * second}, 30 * second},
		"failures of two outages":   {30, []time.Duration{10 * second, 29 * second}, 30 * second},
		"a short one":               {120, []time.Duration{10 * second, 12 * second, 15 * second}, 125 * second},
		"at the deadline":           {120, []time.Duration{118 * second, 121 * second}, 181 * second},
		"with a short timeout":      {5, []time.Duration{4 * second, 7 * second, 15 * second}, 20 * second},
		"of some parallel requests": {30, []time.Duration{10 * second, 10 * second, 10 * second, 12 * second}, 42 * second},
	} {
		seen, start := turns{seen: map[string]sightings{}}, startOfTests()
		seen.interrupt(start.Add(-time.Hour))
		seen.interrupt(start.Add(-time.Hour + time.Second)) // before the turn
		lifecycle := aLifecycle(pending("a"), withPolicy(v1alpha1.Fail, test.timeout), since(-time.Hour))
		at := seen.firstSeen("ns", lifecycle, []string{"a"}, start)
		for _, failure := range test.failures {
			seen.interrupt(start.Add(failure))
		}
		for _, late := range []time.Duration{-1, 0} {
			got := measureTurns(lifecycle, at, seen.interrupted(), start.Add(test.want+late), 0)
			if overdue := len(got.overdue) == 1; overdue != (late == 0) {
				t.Errorf("%s: %s after it is due, it is overdue: %t", name, late, overdue)
			}
		}
	}
}

// TestOutageSeen: an outage shows in the requests of the informer, in lists and in failed steps, and not in what a server refuses.
func TestOutageSeen(t *testing.T) {
	for name, test := range map[string]struct {
		request func(*fixture)
		want    bool
	}{
		"the informer": {func(f *fixture) { _ = f.suspect(unreadableError()) }, true},
		"a list": {func(f *fixture) {
			f.listing.doubt = true
			f.fail(unreadableError())
			_ = f.handle(context.Background(), listKey)
		}, true},
		"a silent watch": {func(f *fixture) { f.listing.problem = errSilent; _ = f.handle(context.Background(), listKey) }, true},
		"a step": {func(f *fixture) {
			f.fail(apierrors.NewInternalError(errors.New("no space")))
			_ = f.handle(context.Background(), "ns")
		}, true},
		"too many": {func(f *fixture) {
			f.fail(apierrors.NewTooManyRequestsError("later"))
			_ = f.handle(context.Background(), "ns")
		}, true},
		"no connection": {func(f *fixture) {
			f.fail(&url.Error{Err: errors.New("refused")})
			_ = f.handle(context.Background(), "ns")
		}, true},
		"not registered": {func(f *fixture) {
			f.fail(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1alpha1.Resource("x"), "ns", "", 0, true))
			_ = f.handle(context.Background(), "ns")
		}, true},
		"forbidden": {func(f *fixture) {
			f.fail(apierrors.NewForbidden(v1alpha1.Resource("x"), "ns", nil))
			_ = f.handle(context.Background(), "ns")
		}, false},
		"a conflict": {func(f *fixture) {
			f.fail(apierrors.NewConflict(v1alpha1.Resource("x"), "ns", errors.New("changed")))
			_ = f.handle(context.Background(), "ns")
		}, false},
		"success": {func(f *fixture) { _ = f.handle(context.Background(), "ns") }, false},
	} {
		f := newFixture(t, namespace(closed), aLifecycle(pending(v1alpha1.InitializerLifecycle), since(0)))
		test.request(f)
		if seen := !f.turns.failed.IsZero(); seen != test.want {
			t.Errorf("%s: an outage: %t", name, seen)
		}
	}
}

// fail makes each request for lifecycles fail.
func (f *fixture) fail(err error) {
	f.nsinit.PrependReactor("*", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// TestStall: the controller marks each turn that lasts for long, once. The server derives a condition from it, which an event
// and the namespace repeat.
func TestStall(t *testing.T) {
	f := newFixture(t, namespace(closed), aLifecycle(pending("a.example.com"), since(0), pending("b.example.com"), inParallel))
	f.StalledAfter = time.Minute
	f.nsinit.PrependReactor("update", "namespacelifecycles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lifecycle := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.NamespaceLifecycle)
		condition := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}
		for _, entry := range lifecycle.Status.Initializers {
			if entry.StalledTime != nil {
				condition.Status, condition.Message = metav1.ConditionTrue, condition.Message+entry.Name+" "
			}
		}
		meta.SetStatusCondition(&lifecycle.Status.Conditions, condition)
		return false, nil, nil
	})
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
	for range 4 { // the second time, they are marked, and the third time the namespace reports it
		reconcile()
	}
	if event := <-f.events.Events; event != "Warning InitializerStalled a.example.com b.example.com " {
		t.Errorf("event %q", event)
	}
	if said := f.condition(t, v1alpha1.ConditionStalled); !strings.Contains(said, "a.example.com b.example.com") {
		t.Errorf("the namespace says %q", said)
	}
	if len(f.events.Events) != 0 {
		t.Errorf("another event: %q", <-f.events.Events)
	}
	// The turns end, which the server says.
	lifecycle := reconcile()
	lifecycle.Spec.Initializers.Pending = []v1alpha1.NamespaceInitializer{{Name: "c.example.com"}}
	lifecycle.Spec.Plan = append(lifecycle.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "c.example.com"}})
	lifecycle.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "c.example.com"}}
	meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionStalled).Status = metav1.ConditionFalse
	f.refresh(t, lifecycle)
	reconcile()
	f.running(t, "c.example.com")
	if said := f.condition(t, v1alpha1.ConditionStalled); !strings.HasPrefix(said, "Stalled=False ") {
		t.Errorf("the namespace says %q", said)
	}
	// The namespace is deleted, and its participant does not clean up.
	live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.DeletionTimestamp, live.Finalizers = &metav1.Time{Time: clock.Now()}, []string{v1alpha1.NamespaceFinalizer}
	if err := f.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), live, ""); err != nil {
		t.Fatal(err)
	}
	lifecycle.DeletionTimestamp, lifecycle.Spec.Finalizers = live.DeletionTimestamp, []v1alpha1.FinalizerName{"c.example.com", "added.example.com", v1alpha1.FinalizerKubernetes}
	f.refresh(t, lifecycle)
	reconcile()
	if len(f.events.Events) != 0 {
		t.Errorf("an early event: %q", <-f.events.Events)
	}
	clock.Step(time.Minute)
	for range 4 {
		reconcile()
	}
	if event := <-f.events.Events; event != "Warning ParticipantStalled c.example.com " {
		t.Errorf("event %q", event)
	}
	if said := f.condition(t, v1alpha1.ConditionStalled); said != "Stalled=True CleanupTooLong c.example.com " {
		t.Errorf("the namespace says %q", said)
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
	end := metav1.NewMicroTime(startOfTests().Add(2500 * time.Millisecond))
	lifecycle := func(uid string, entries ...v1alpha1.InitializerStatus) *v1alpha1.NamespaceLifecycle {
		r := aLifecycle()
		r.UID, r.Status.Initializers = types.UID(uid), entries
		return r
	}
	entry := func(name string, state v1alpha1.InitializerState) v1alpha1.InitializerStatus {
		return v1alpha1.InitializerStatus{Name: name, State: state, StartTime: &start, EndTime: &end, LastActor: "who", Message: "why"}
	}
	short := entry("b", "Done")
	short.EndTime = new(metav1.NewMicroTime(startOfTests().Add(reportWaitAfter - time.Millisecond)))
	early := entry("b", "Done")
	early.StartTime = nil
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
			[]event{{"Normal", "InitializerDone", `Initializer "a" is done after 2.5s (user "who")`}}},
		"a short turn ends":              {lifecycle("1", entry("b", "Running")), lifecycle("1", short), nil},
		"one is removed before its turn": {lifecycle("1", entry("a", "Running"), entry("b", "Waiting")), lifecycle("1", short, early), nil},
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
			if diff := cmp.Diff(test.want, transitions(test.old, test.updated), cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
