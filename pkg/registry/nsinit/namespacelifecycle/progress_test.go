/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func planOf(names ...string) *nsinit.NamespaceLifecycle {
	record := &nsinit.NamespaceLifecycle{}
	for _, name := range names {
		record.Spec.Plan = append(record.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}})
	}
	setPending(record, names...)
	return record
}

func setPending(record *nsinit.NamespaceLifecycle, names ...string) {
	record.Spec.Initializers = nil
	for _, name := range names {
		if record.Spec.Initializers == nil {
			record.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		record.Spec.Initializers.Pending = append(record.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
	}
}

// change removes initializers, as a write to the initialize subresource does.
func change(record *nsinit.NamespaceLifecycle, now time.Time, actor string, names ...string) {
	record.Generation++
	setPending(record, names...)
	settle(record, now, actor)
}

// currentOf returns the initializers that have their turn, separated by spaces.
func currentOf(record *nsinit.NamespaceLifecycle) string {
	return strings.Join(record.Status.CurrentInitializers, " ")
}

func at(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }

func micro(seconds int) *metav1.MicroTime {
	t := metav1.NewMicroTime(at(seconds))
	return &t
}

// conditions returns what the two conditions say, as STATUS/REASON.
func conditions(record *nsinit.NamespaceLifecycle) [2]string {
	var said [2]string
	for i, kind := range []string{v1alpha1.ConditionInitializing, v1alpha1.ConditionReady} {
		if c := meta.FindStatusCondition(record.Status.Conditions, kind); c != nil {
			said[i] = string(c.Status) + "/" + c.Reason
		}
	}
	return said
}

func TestProgress(t *testing.T) {
	record := planOf("a", "b")
	seconds, ignore := int32(7), v1alpha1.Ignore
	record.Spec.Plan[1].FailurePolicy, record.Spec.Plan[1].TimeoutSeconds = &ignore, &seconds

	check := func(step string, phase v1alpha1.LifecyclePhase, current string, said [2]string, entries ...v1alpha1.InitializerStatus) {
		t.Helper()
		if record.Status.Phase != phase || currentOf(record) != current {
			t.Errorf("%s: phase %q, current %q", step, record.Status.Phase, currentOf(record))
		}
		if diff := cmp.Diff(entries, record.Status.Initializers); diff != "" {
			t.Errorf("%s: initializers (-want +got):\n%s", step, diff)
		}
		if diff := cmp.Diff(said, conditions(record)); diff != "" {
			t.Errorf("%s: conditions (-want +got):\n%s", step, diff)
		}
	}
	waits := [2]string{"True/InitializersPending", "False/InitializersPending"}

	begin(record, at(0), "controller")
	check("begin", v1alpha1.LifecycleInitializing, "a", waits,
		v1alpha1.InitializerStatus{Name: "a", State: v1alpha1.InitializerRunning, StartTime: micro(0)},
		v1alpha1.InitializerStatus{Name: "b", State: v1alpha1.InitializerWaiting})

	record.Status.Initializers[0].Message = "no quota yet"
	change(record, at(10), "hook-a", "b")
	check("a is done", v1alpha1.LifecycleInitializing, "b", waits,
		v1alpha1.InitializerStatus{Name: "a", State: v1alpha1.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		v1alpha1.InitializerStatus{Name: "b", State: v1alpha1.InitializerRunning, StartTime: micro(10), Deadline: micro(17)})

	change(record, at(12), "another", "b")
	check("nothing changes", v1alpha1.LifecycleInitializing, "b", waits,
		v1alpha1.InitializerStatus{Name: "a", State: v1alpha1.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		v1alpha1.InitializerStatus{Name: "b", State: v1alpha1.InitializerRunning, StartTime: micro(10), Deadline: micro(17)})

	change(record, at(15), "hook-b")
	check("b is done", v1alpha1.LifecycleActive, "", [2]string{"False/Initialized", "True/Initialized"},
		v1alpha1.InitializerStatus{Name: "a", State: v1alpha1.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		v1alpha1.InitializerStatus{Name: "b", State: v1alpha1.InitializerDone, StartTime: micro(10), EndTime: micro(15), Deadline: micro(17), LastActor: "hook-b"})

	deleted := metav1.NewTime(at(20))
	record.DeletionTimestamp = &deleted
	settle(record, at(20), "")
	if record.Status.Phase != v1alpha1.LifecycleTerminating {
		t.Errorf("deletion: phase %q", record.Status.Phase)
	}
	if diff := cmp.Diff([2]string{"False/Terminating", "False/Terminating"}, conditions(record)); diff != "" {
		t.Errorf("deletion: conditions (-want +got):\n%s", diff)
	}
}

// TestMessage: one sentence says whose turn it is, since when and until when.
func TestMessage(t *testing.T) {
	ignore, fail, seconds := v1alpha1.Ignore, v1alpha1.Fail, int32(600)
	for name, test := range map[string]struct {
		pending []string
		change  func(*nsinit.NamespaceLifecycle)
		want    string
	}{
		"the built-in initializer": {[]string{v1alpha1.InitializerLifecycle, "a", "b"}, nil, `waiting for initializer "` + v1alpha1.InitializerLifecycle + `" since 2026-01-01T00:00:00Z`},
		"the first":                {[]string{"a", "b"}, nil, `waiting for initializer "a" (1 of 2) since 2026-01-01T00:00:00Z`},
		"the last":                 {[]string{"b"}, nil, `waiting for initializer "b" (2 of 2) since 2026-01-01T00:00:00Z`},
		"it is skipped at its deadline": {[]string{"a", "b"}, func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Plan[1].FailurePolicy, r.Spec.Plan[1].TimeoutSeconds = &ignore, &seconds
		}, `waiting for initializer "a" (1 of 2) since 2026-01-01T00:00:00Z until 2026-01-01T00:10:00Z, when it is skipped`},
		"it fails at its deadline": {[]string{"a", "b"}, func(r *nsinit.NamespaceLifecycle) {
			r.Spec.Plan[1].FailurePolicy, r.Spec.Plan[1].TimeoutSeconds = &fail, &seconds
		}, `waiting for initializer "a" (1 of 2) since 2026-01-01T00:00:00Z until 2026-01-01T00:10:00Z, when the initialization fails and the namespace is deleted`},
	} {
		t.Run(name, func(t *testing.T) {
			record := planOf(v1alpha1.InitializerLifecycle, "a", "b")
			if test.change != nil {
				test.change(record)
			}
			setPending(record, test.pending...)
			begin(record, at(0), "creator")
			if got := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionInitializing).Message; got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

func TestProgressOfFailure(t *testing.T) {
	record := planOf("a", "b")
	begin(record, at(0), "controller")
	record.Spec.Initializers.Result, record.Spec.Initializers.FailedInitializer = &metav1.Status{Status: metav1.StatusFailure, Message: "no quota left"}, "a"
	settle(record, at(5), "hook-a")
	want := []v1alpha1.InitializerStatus{
		{Name: "a", State: v1alpha1.InitializerFailed, StartTime: micro(0), EndTime: micro(5), Message: "no quota left", LastActor: "hook-a"},
		{Name: "b", State: v1alpha1.InitializerWaiting},
	}
	if diff := cmp.Diff(want, record.Status.Initializers); diff != "" {
		t.Errorf("initializers (-want +got):\n%s", diff)
	}
	if currentOf(record) != "" {
		t.Errorf("after the failure it is still the turn of %q", currentOf(record))
	}
	if diff := cmp.Diff([2]string{"True/InitializationFailed", "False/InitializationFailed"}, conditions(record)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestProgressWhileTerminating(t *testing.T) {
	record := planOf("a", "b")
	begin(record, at(0), "controller")
	deleted := metav1.NewTime(at(1))
	record.DeletionTimestamp = &deleted
	settle(record, at(1), "")
	if currentOf(record) != "" {
		t.Errorf("it is still the turn of %q", currentOf(record))
	}
	if record.Status.Phase != v1alpha1.LifecycleTerminating {
		t.Errorf("phase is %q", record.Status.Phase)
	}
	want := []v1alpha1.InitializerStatus{
		{Name: "a", State: v1alpha1.InitializerRunning, StartTime: micro(0)},
		{Name: "b", State: v1alpha1.InitializerWaiting, Message: neverInitialized},
	}
	if diff := cmp.Diff(want, record.Status.Initializers); diff != "" {
		t.Errorf("initializers (-want +got):\n%s", diff)
	}
}

// TestSkipped: the status distinguishes skipped from done, with the actor and the reason.
func TestSkipped(t *testing.T) {
	const said = "; last report: half way"
	tests := map[string]struct {
		policy  bool
		at      int
		message string
		want    string
	}{
		"at its deadline":                {true, 7, "half way", "skipped at its deadline of 7s" + said},
		"at its deadline, with no word":  {true, 8, "", "skipped at its deadline of 7s"},
		"at its deadline, after a novel": {true, 8, strings.Repeat("x", v1alpha1.MaxMessageLength), "skipped at its deadline of 7s"},
		"before its deadline":            {true, 6, "half way", "skipped before it was done" + said},
		"without a deadline":             {false, 600, "half way", "skipped before it was done" + said},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			record := planOf("a", "b")
			if test.policy {
				seconds, ignore := int32(7), v1alpha1.Ignore
				record.Spec.Plan[0].FailurePolicy, record.Spec.Plan[0].TimeoutSeconds = &ignore, &seconds
			}
			begin(record, at(0), "controller")
			record.Status.Initializers[0].Message = test.message
			record.Spec.Skipped = []string{"a"}
			change(record, at(test.at), "controller", "b")
			entry := record.Status.Initializers[0]
			if entry.State != v1alpha1.InitializerSkipped || entry.LastActor != "controller" || entry.Message != test.want {
				t.Errorf("the entry is %+v, want the message %q", entry, test.want)
			}
			if currentOf(record) != "b" || !record.Status.Initializers[1].StartTime.Time.Equal(at(test.at)) {
				t.Errorf("current %q, since %s", currentOf(record), record.Status.Initializers[1].StartTime)
			}
			change(record, at(700), "hook-b")
			if got := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(got, `"a"`) {
				t.Errorf("the condition does not name who was skipped: %q", got)
			}
		})
	}
}

// TestStalled: the condition ends with the turn that it is about, and not before.
func TestStalled(t *testing.T) {
	record := planOf("a", "b", "c")
	begin(record, at(0), "controller")
	change(record, at(1), "hook-a", "b", "c")
	if meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		t.Error("no turn has lasted for long")
	}
	record.Status.Initializers[1].StalledTime = micro(2)
	change(record, at(2), "another", "b", "c")
	if got := messageOf(record, v1alpha1.ConditionStalled); !meta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.ConditionStalled) ||
		!strings.HasPrefix(got, `the turn of initializer "b" has lasted since 2026-01-01T00:00:01Z: check that it runs`) {
		t.Errorf("the turn is not over, and the message is %q", got)
	}
	change(record, at(3), "hook-b", "c")
	if !meta.IsStatusConditionFalse(record.Status.Conditions, v1alpha1.ConditionStalled) || record.Status.Initializers[1].StalledTime != nil {
		t.Error("the turn is over")
	}
}

// TestParticipants: the conditions of a terminating NamespaceLifecycle name the participants that have not cleaned up, since when they
// are asked, and what they last reported. Stalled covers their cleanup, not the turn before it, and precedes an earlier failure.
func TestParticipants(t *testing.T) {
	kind := NewKind(nil, clocktesting.NewFakePassiveClock(at(5)))
	const stalls = "; check that it runs, and read its log; if it does not exist any more, an administrator can run kubectl nsinit finalize shop PARTICIPANT"
	record := planOf("a", "b")
	record.Name, record.Spec.Finalizers = "shop", []v1alpha1.FinalizerName{"a", "b", v1alpha1.FinalizerKubernetes}
	record.Spec.Plan[0].FailurePolicy, record.Spec.Plan[0].TimeoutSeconds = new(v1alpha1.Ignore), new(int32(9))
	begin(record, at(0), "controller")
	check := func(step, waits, stalled string) {
		t.Helper()
		if got := messageOf(record, v1alpha1.ConditionReady); got != "the namespace is being deleted"+waits {
			t.Errorf("%s: Ready says %q", step, got)
		}
		got := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionStalled)
		if says := fmt.Sprint(got.Status, "/", got.Reason, " ", got.Message); says != stalled {
			t.Errorf("%s: Stalled is %q, want %q", step, says, stalled)
		}
	}
	finalize := func(names ...v1alpha1.FinalizerName) {
		before := record.DeepCopyObject().(*nsinit.NamespaceLifecycle)
		record.Spec.Finalizers = names
		kind.Endpoints["finalize"].Prepare(genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "admin"}), record, before)
	}
	const over = "False/TurnEnded no initializer or participant is stalled any more"
	record.Status.Initializers[0].StalledTime = micro(2)
	settle(record, at(3), "")
	record.DeletionTimestamp = &metav1.Time{Time: at(4)}
	kind.Terminate(record)
	record.Status.Initializers[1].Message = "" // it never had its turn
	settlePhase(record, at(5))
	const since = " since 2026-01-01T00:00:04Z"
	check("deleted", `; waiting for participants "a", "b"`+since, over)

	record.Status.Initializers[0].Message, record.Status.Initializers[0].LastActor = "zone is\nin use", "dns"
	record.Status.Initializers[1].StalledTime = micro(400)
	settlePhase(record, at(400))
	settleStalled(record, at(400))
	waits := `waiting for participants "a", "b"` + since + `; "a": "zone is in use" ("dns")`
	check("b is stalled", "; "+waits, "True/CleanupTooLong "+waits+stalls)

	finalize("a", v1alpha1.FinalizerKubernetes)
	check("b has cleaned up", `; waiting for participant "a"`+since+": zone is\nin use (dns)", over)
	if got := record.Status.Initializers[1]; got.LastActor != "admin" || got.StalledTime != nil || record.Status.Initializers[0].LastActor != "dns" {
		t.Errorf("the entry of b is %+v", got)
	}
	record.Spec.Initializers.Result, record.Spec.Initializers.FailedInitializer = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}, "a"
	record.Status.Initializers[0].StalledTime = micro(400)
	finalize("a")
	waits = `waiting for participant "a"` + since + ": zone is\nin use (dns)"
	check("a is stalled", `: initializer "a" failed: no; `+waits, "True/CleanupTooLong "+waits+stalls)
	finalize()
	check("a has cleaned up", `: initializer "a" failed: no`, `True/InitializationFailed initializer "a" failed: no`)

	live := planOf("a")
	live.Spec.Finalizers = []v1alpha1.FinalizerName{"a"}
	begin(live, at(0), "controller")
	record = live
	finalize()
	if got := live.Status.Initializers[0].LastActor; got != "" {
		t.Errorf("a participant that is removed before the deletion has the last actor %q", got)
	}
}

// TestConditionsDescribeTheGeneration: a write describes the new generation in every condition, also in those that it does
// not change.
func TestConditionsDescribeTheGeneration(t *testing.T) {
	record := planOf("a", "b")
	record.Generation = 1
	record.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpressionFailed}}
	begin(record, at(0), "controller")
	check := func(step string, want int) {
		t.Helper()
		if got := len(record.Status.Conditions); got != want {
			t.Errorf("%s: %d conditions, want %d", step, got, want)
		}
		for _, condition := range record.Status.Conditions {
			if condition.ObservedGeneration != record.Generation {
				t.Errorf("%s: condition %s describes generation %d of %d", step, condition.Type, condition.ObservedGeneration, record.Generation)
			}
		}
	}
	check("begin", 3)
	record.Status.Initializers[1].StalledTime = micro(1) // as the controller writes it
	meta.SetStatusCondition(&record.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionOpenedByHand, Status: metav1.ConditionTrue, ObservedGeneration: record.Generation})
	change(record, at(1), "hook-a", "b")
	check("a is done", 5)
	record.Generation++
	record.DeletionTimestamp = &metav1.Time{Time: at(2)}
	settle(record, at(2), "")
	check("deletion", 5)
}

// TestFailedIsStalled: a failure is final, so the condition Stalled reports it, also while the namespace is deleted.
func TestFailedIsStalled(t *testing.T) {
	record := planOf("a", "b")
	record.Generation = 1
	begin(record, at(0), "controller")
	record.Spec.Initializers.Result, record.Spec.Initializers.FailedInitializer = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}, "a"
	record.Generation = 2
	settle(record, at(1), "hook-a")
	for _, deleted := range []bool{false, true} {
		if deleted {
			record.DeletionTimestamp = &metav1.Time{Time: at(2)}
			settle(record, at(2), "")
		}
		got := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionStalled)
		if got == nil || got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonFailed || got.Message != `initializer "a" failed: no` || got.ObservedGeneration != 2 {
			t.Errorf("deleted %t: %+v", deleted, got)
		}
	}
}
