/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	v1alpha1helper "github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// begin sets the status of a new NamespaceLifecycle: every planned initializer waits, and the first
// pending one has its turn. Of the status that it has, only the condition PlanDegraded is kept, which admission has set.
func begin(lifecycle *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	degraded := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	lifecycle.Status = nsinit.NamespaceLifecycleStatus{}
	if degraded != nil {
		degraded.LastTransitionTime = metav1.NewTime(now)
		lifecycle.Status.Conditions = []metav1.Condition{*degraded}
	}
	for _, planned := range lifecycle.Spec.Plan {
		lifecycle.Status.Initializers = append(lifecycle.Status.Initializers, nsinit.InitializerStatus{
			Name:  planned.Name,
			State: nsinit.InitializerWaiting,
		})
	}
	advance(lifecycle, nil, now, actor)
}

// advance derives the start of the turn and the status after a change of spec.initializers. For a new
// NamespaceLifecycle, old is nil.
func advance(lifecycle, old *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	startTurn(lifecycle, old, now)
	settle(lifecycle, now, actor)
}

// startTurn sets the start of the turn to now, unless the first pending initializer stayed the same.
func startTurn(lifecycle, old *nsinit.NamespaceLifecycle, now time.Time) {
	pending := helper.Pending(lifecycle)
	if len(pending) == 0 {
		return
	}
	stamp := metav1.NewMicroTime(now)
	lifecycle.Spec.Initializers.TurnStartTime = &stamp
	if old == nil {
		return
	}
	before := helper.Pending(old)
	if len(before) > 0 && before[0] == pending[0] && old.Spec.Initializers.TurnStartTime != nil {
		lifecycle.Spec.Initializers.TurnStartTime = old.Spec.Initializers.TurnStartTime
	}
}

// settle derives the status from the spec: the state of each initializer, the phase and the conditions.
// It does not change entries of initializers that have ended.
func settle(lifecycle *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	old, pending := lifecycle.Status.CurrentInitializer, helper.Pending(lifecycle)
	for i := range lifecycle.Status.Initializers {
		settleEntry(lifecycle, &lifecycle.Status.Initializers[i], pending, now, actor)
	}
	settlePhase(lifecycle, now)
	if lifecycle.Status.CurrentInitializer != old {
		endStall(lifecycle, now)
	}
}

// neverInitialized is the message of an initializer that had no turn.
const neverInitialized = "never had its turn: the namespace was deleted before"

// settleEntry derives the state of one initializer from the names of the pending ones.
func settleEntry(lifecycle *nsinit.NamespaceLifecycle, entry *nsinit.InitializerStatus, pending []string, now time.Time, actor string) {
	if entry.EndTime != nil {
		return
	}
	if lifecycle.DeletionTimestamp != nil && entry.StartTime == nil {
		// A participant still removes its name from spec.finalizers, but has nothing to clean
		// up. Its own message is kept.
		if entry.Message == "" {
			entry.Message = neverInitialized
		}
		return
	}
	stamp := metav1.NewMicroTime(now)
	turn := len(pending) > 0 && pending[0] == entry.Name
	switch {
	case !slices.Contains(pending, entry.Name):
		entry.EndTime, entry.LastActor = &stamp, actor
		if slices.Contains(lifecycle.Spec.Skipped, entry.Name) {
			entry.State, entry.Message = nsinit.InitializerSkipped, skippedMessage(entry, now)
		} else {
			entry.State, entry.Message = nsinit.InitializerDone, "" // the error of an earlier try
		}
	case turn && helper.Failure(lifecycle) != nil:
		entry.State, entry.EndTime, entry.LastActor = nsinit.InitializerFailed, &stamp, actor
		entry.Message = helper.Failure(lifecycle).Message
	case turn && entry.StartTime == nil:
		entry.State, entry.StartTime = nsinit.InitializerRunning, lifecycle.Spec.Initializers.TurnStartTime
		entry.Deadline = deadlineTime(lifecycle)
	}
}

// settlePhase derives the phase, the current initializer and the conditions.
func settlePhase(lifecycle *nsinit.NamespaceLifecycle, now time.Time) {
	pending, failed := helper.Pending(lifecycle), helper.Failure(lifecycle)
	lifecycle.Status.CurrentInitializer = ""
	switch {
	case lifecycle.DeletionTimestamp != nil:
		lifecycle.Status.Phase = nsinit.LifecycleTerminating
		message := "the namespace is being deleted"
		if failed != nil {
			message += fmt.Sprintf(": initializer %q failed: %s", pending[0], failed.Message)
		}
		setConditions(lifecycle, now, metav1.ConditionFalse, v1alpha1.ReasonTerminating, message)
	case failed != nil:
		lifecycle.Status.Phase = nsinit.LifecycleInitializing
		setConditions(lifecycle, now, metav1.ConditionTrue, v1alpha1.ReasonFailed,
			fmt.Sprintf("initializer %q failed: %s; the namespace is deleted", pending[0], failed.Message))
	case len(pending) > 0:
		lifecycle.Status.Phase = nsinit.LifecycleInitializing
		lifecycle.Status.CurrentInitializer = pending[0]
		setConditions(lifecycle, now, metav1.ConditionTrue, v1alpha1.ReasonPending, waitingMessage(lifecycle))
	default:
		lifecycle.Status.Phase = nsinit.LifecycleActive
		message := "every initializer is done"
		switch {
		case len(lifecycle.Spec.Plan) == 0:
			message = "no initializer was planned for this namespace"
		case len(lifecycle.Spec.Skipped) > 0:
			message = fmt.Sprintf("every initializer is done except for the skipped ones: %q", lifecycle.Spec.Skipped)
		}
		setConditions(lifecycle, now, metav1.ConditionFalse, v1alpha1.ReasonInitialized, message)
	}
}

// waitingMessage names the current initializer, the start of its turn, its deadline and what it last
// reported. The built-in initializer is not counted.
func waitingMessage(lifecycle *nsinit.NamespaceLifecycle) string {
	pending, total := helper.Pending(lifecycle), len(lifecycle.Spec.Plan)
	planned, entry := current(lifecycle), helper.Entry(lifecycle, pending[0])
	text := fmt.Sprintf("waiting for initializer %q", pending[0])
	if pending[0] != v1alpha1.InitializerLifecycle {
		position := total - len(pending) + 1
		if helper.Planned(lifecycle, v1alpha1.InitializerLifecycle) != nil {
			position, total = position-1, total-1
		}
		text += fmt.Sprintf(" (%d of %d)", position, total)
	}
	if entry == nil {
		return text
	}
	if entry.StartTime != nil {
		text += " since " + entry.StartTime.UTC().Format(time.RFC3339)
	}
	if entry.Deadline != nil && planned != nil && planned.FailurePolicy != nil {
		then := "it is skipped"
		if *planned.FailurePolicy == nsinit.Fail {
			then = "the initialization fails and the namespace is deleted"
		}
		text += " until " + entry.Deadline.UTC().Format(time.RFC3339) + ", when " + then
	}
	if entry.Message != "" {
		text += ": " + entry.Message
	}
	return text
}

// setConditions sets the conditions Initializing and Ready. A namespace is ready if it is neither
// initializing nor being deleted.
func setConditions(lifecycle *nsinit.NamespaceLifecycle, now time.Time, initializing metav1.ConditionStatus, reason, message string) {
	ready := metav1.ConditionTrue
	if initializing == metav1.ConditionTrue || lifecycle.DeletionTimestamp != nil {
		ready = metav1.ConditionFalse
	}
	for _, condition := range []metav1.Condition{
		{Type: v1alpha1.ConditionInitializing, Status: initializing},
		{Type: v1alpha1.ConditionReady, Status: ready},
	} {
		condition.Reason, condition.Message = reason, message
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&lifecycle.Status.Conditions, condition)
	}
}

// endStall sets the condition Stalled to False if it is True.
func endStall(lifecycle *nsinit.NamespaceLifecycle, now time.Time) {
	if meta.IsStatusConditionTrue(lifecycle.Status.Conditions, v1alpha1.ConditionStalled) {
		meta.SetStatusCondition(&lifecycle.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
			Reason: v1alpha1.ReasonTurnEnded, Message: v1alpha1helper.TurnEnded,
		})
	}
}

// deadlineTime returns when the failurePolicy of the first pending initializer takes effect, or nil if it
// has none.
func deadlineTime(lifecycle *nsinit.NamespaceLifecycle) *metav1.MicroTime {
	planned := current(lifecycle)
	if planned == nil || planned.FailurePolicy == nil || planned.TimeoutSeconds == nil || lifecycle.Spec.Initializers.TurnStartTime == nil {
		return nil
	}
	at := metav1.NewMicroTime(lifecycle.Spec.Initializers.TurnStartTime.Add(time.Duration(*planned.TimeoutSeconds) * time.Second))
	return &at
}

// current returns the plan's entry of the first pending initializer, or nil.
func current(lifecycle *nsinit.NamespaceLifecycle) *nsinit.PlannedInitializer {
	pending := helper.Pending(lifecycle)
	if len(pending) == 0 {
		return nil
	}
	return helper.Planned(lifecycle, pending[0])
}

// skippedMessage returns why an initializer was skipped, and what it last reported.
func skippedMessage(entry *nsinit.InitializerStatus, now time.Time) string {
	why := "skipped before it was done"
	if entry.Deadline != nil && !now.Before(entry.Deadline.Time) {
		why = fmt.Sprintf("skipped at its deadline, after %s", entry.Deadline.Sub(entry.StartTime.Time))
	}
	if entry.Message == "" {
		return why
	}
	if room := validation.MaxMessageLength - len(why) - len("; last report: "); len(entry.Message) > room {
		return why
	}
	return why + "; last report: " + entry.Message
}

// normalize replaces an empty list with nil, and removes control characters from the result.
func normalize(lifecycle *nsinit.NamespaceLifecycle) {
	initializers := lifecycle.Spec.Initializers
	switch {
	case initializers == nil:
	case initializers.Result != nil:
		initializers.Result.Message = printable.Lines(initializers.Result.Message)
	case len(initializers.Pending) == 0:
		lifecycle.Spec.Initializers = nil
	}
}
