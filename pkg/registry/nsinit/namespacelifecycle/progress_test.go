/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

func planOf(names ...string) *nsinit.NamespaceLifecycle {
	record := &nsinit.NamespaceLifecycle{}
	for _, name := range names {
		record.Spec.Plan = append(record.Spec.Plan, nsinit.PlannedInitializer{Name: name})
	}
	setPending(record, names...)
	return record
}

func setPending(record *nsinit.NamespaceLifecycle, names ...string) {
	record.Spec.Initializers = nil
	for _, name := range names {
		if record.Spec.Initializers == nil {
			record.Spec.Initializers = &nsinit.NamespaceInitializers{}
		}
		record.Spec.Initializers.Pending = append(record.Spec.Initializers.Pending, nsinit.NamespaceInitializer{Name: name})
	}
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
	seconds, ignore := int32(7), nsinit.Ignore
	record.Spec.Plan[1].FailurePolicy, record.Spec.Plan[1].TimeoutSeconds = &ignore, &seconds

	check := func(step string, phase nsinit.LifecyclePhase, current string, said [2]string, entries ...nsinit.InitializerStatus) {
		t.Helper()
		if record.Status.Phase != phase || record.Status.CurrentInitializer != current {
			t.Errorf("%s: phase %q, current %q", step, record.Status.Phase, record.Status.CurrentInitializer)
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
	check("begin", nsinit.LifecycleInitializing, "a", waits,
		nsinit.InitializerStatus{Name: "a", State: nsinit.InitializerRunning, StartTime: micro(0)},
		nsinit.InitializerStatus{Name: "b", State: nsinit.InitializerWaiting})

	setPending(record, "b")
	settle(record, at(10), "hook-a")
	check("a is done", nsinit.LifecycleInitializing, "b", waits,
		nsinit.InitializerStatus{Name: "a", State: nsinit.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		nsinit.InitializerStatus{Name: "b", State: nsinit.InitializerRunning, StartTime: micro(10), Deadline: micro(17)})

	settle(record, at(12), "somebody")
	check("nothing changes", nsinit.LifecycleInitializing, "b", waits,
		nsinit.InitializerStatus{Name: "a", State: nsinit.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		nsinit.InitializerStatus{Name: "b", State: nsinit.InitializerRunning, StartTime: micro(10), Deadline: micro(17)})

	setPending(record)
	settle(record, at(15), "hook-b")
	check("b is done", nsinit.LifecycleActive, "", [2]string{"False/Initialized", "True/Initialized"},
		nsinit.InitializerStatus{Name: "a", State: nsinit.InitializerDone, StartTime: micro(0), EndTime: micro(10), LastActor: "hook-a"},
		nsinit.InitializerStatus{Name: "b", State: nsinit.InitializerDone, StartTime: micro(10), EndTime: micro(15), Deadline: micro(17), LastActor: "hook-b"})

	deleted := metav1.NewTime(at(20))
	record.DeletionTimestamp = &deleted
	settle(record, at(20), "")
	if record.Status.Phase != nsinit.LifecycleTerminating {
		t.Errorf("deletion: phase %q", record.Status.Phase)
	}
	if diff := cmp.Diff([2]string{"False/Terminating", "False/Terminating"}, conditions(record)); diff != "" {
		t.Errorf("deletion: conditions (-want +got):\n%s", diff)
	}
}

func TestProgressOfFailure(t *testing.T) {
	record := planOf("a", "b")
	begin(record, at(0), "controller")
	record.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no quota left"}
	settle(record, at(5), "hook-a")
	want := []nsinit.InitializerStatus{
		{Name: "a", State: nsinit.InitializerFailed, StartTime: micro(0), EndTime: micro(5), Message: "no quota left", LastActor: "hook-a"},
		{Name: "b", State: nsinit.InitializerWaiting},
	}
	if diff := cmp.Diff(want, record.Status.Initializers); diff != "" {
		t.Errorf("initializers (-want +got):\n%s", diff)
	}
	if record.Status.CurrentInitializer != "" {
		t.Errorf("after the failure it is still the turn of %q", record.Status.CurrentInitializer)
	}
	if diff := cmp.Diff([2]string{"True/InitializationFailed", "False/InitializationFailed"}, conditions(record)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestProgressWhileTerminating(t *testing.T) {
	record := planOf("a")
	begin(record, at(0), "controller")
	deleted := metav1.NewTime(at(1))
	record.DeletionTimestamp = &deleted
	settle(record, at(1), "")
	if record.Status.CurrentInitializer != "" {
		t.Errorf("it is still the turn of %q", record.Status.CurrentInitializer)
	}
	if record.Status.Phase != nsinit.LifecycleTerminating {
		t.Errorf("phase is %q", record.Status.Phase)
	}
}
