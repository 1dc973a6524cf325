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
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// begin sets the status of a new NamespaceLifecycle: every planned initializer waits, and those that wait for no other
// one have their turn. Of the status that it has, only the condition PlanDegraded is kept, which admission has set.
func begin(lifecycle *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	degraded := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	lifecycle.Status = v1alpha1.NamespaceLifecycleStatus{}
	if degraded != nil {
		degraded.LastTransitionTime = metav1.NewTime(now)
		lifecycle.Status.Conditions = []metav1.Condition{*degraded}
	}
	for _, planned := range lifecycle.Spec.Plan {
		lifecycle.Status.Initializers = append(lifecycle.Status.Initializers, v1alpha1.InitializerStatus{
			Name:  planned.Name,
			State: v1alpha1.InitializerWaiting,
		})
	}
	settle(lifecycle, now, actor)
}

// settle derives the status from the spec: the state of each initializer, the phase and the conditions.
// It does not change entries of initializers that have ended. A condition that stays, such as PlanDegraded, describes the new
// generation, too: kubectl wait ignores conditions of an earlier one.
func settle(lifecycle *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	current := lifecycle.CurrentInitializers()
	for i := range lifecycle.Status.Initializers {
		settleEntry(lifecycle, &lifecycle.Status.Initializers[i], current, now, actor)
	}
	settlePhase(lifecycle, now)
	settleStalled(lifecycle, now)
	for i := range lifecycle.Status.Conditions {
		lifecycle.Status.Conditions[i].ObservedGeneration = lifecycle.Generation
	}
}

// neverInitialized is the message of an initializer that had no turn.
const neverInitialized = "never had its turn: the namespace was deleted before"

// settleEntry derives the state of one initializer. Its turn begins now if it is current and has not begun before.
func settleEntry(lifecycle *nsinit.NamespaceLifecycle, entry *v1alpha1.InitializerStatus, current []string, now time.Time, actor string) {
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
	switch {
	case !slices.Contains(lifecycle.Pending(), entry.Name):
		entry.EndTime, entry.LastActor = &stamp, actor
		if slices.Contains(lifecycle.Spec.Skipped, entry.Name) {
			entry.State, entry.Message = v1alpha1.InitializerSkipped, skippedMessage(entry, now)
		} else {
			entry.State, entry.Message = v1alpha1.InitializerDone, "" // the error of an earlier try
		}
	case lifecycle.FailedInitializer() == entry.Name:
		entry.State, entry.EndTime, entry.LastActor = v1alpha1.InitializerFailed, &stamp, actor
		entry.Message = lifecycle.Failure().Message
	case entry.StartTime == nil && slices.Contains(current, entry.Name):
		entry.State, entry.StartTime = v1alpha1.InitializerRunning, &stamp
		entry.Deadline = deadline(lifecycle.Planned(entry.Name), entry)
	}
}

// settlePhase derives the phase, the current initializers and the conditions.
func settlePhase(lifecycle *nsinit.NamespaceLifecycle, now time.Time) {
	pending, failed := lifecycle.Pending(), lifecycle.Failure()
	lifecycle.Status.CurrentInitializers = nil
	switch {
	case lifecycle.DeletionTimestamp != nil:
		lifecycle.Status.Phase = v1alpha1.LifecycleTerminating
		message := "the namespace is being deleted"
		if failed != nil {
			message += fmt.Sprintf(": initializer %q failed: %s", lifecycle.FailedInitializer(), failed.Message)
		}
		if len(lifecycle.Participants()) > 0 {
			message += "; " + waitingMessage(lifecycle)
		}
		setConditions(lifecycle, now, metav1.ConditionFalse, v1alpha1.ReasonTerminating, message)
	case failed != nil:
		lifecycle.Status.Phase = v1alpha1.LifecycleInitializing
		setConditions(lifecycle, now, metav1.ConditionTrue, v1alpha1.ReasonFailed,
			fmt.Sprintf("initializer %q failed: %s; nsinit deletes the namespace", lifecycle.FailedInitializer(), failed.Message))
	case len(pending) > 0:
		lifecycle.Status.Phase = v1alpha1.LifecycleInitializing
		lifecycle.Status.CurrentInitializers = lifecycle.CurrentInitializers()
		setConditions(lifecycle, now, metav1.ConditionTrue, v1alpha1.ReasonPending, waitingMessage(lifecycle))
	default:
		lifecycle.Status.Phase = v1alpha1.LifecycleActive
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

// setConditions sets the conditions Initializing and Ready. A namespace is ready if it is neither
// initializing nor being deleted.
func setConditions(lifecycle *nsinit.NamespaceLifecycle, now time.Time, initializing metav1.ConditionStatus, reason, message string) {
	ready := metav1.ConditionTrue
	if initializing == metav1.ConditionTrue || lifecycle.DeletionTimestamp != nil {
		ready = metav1.ConditionFalse
	}
	for _, condition := range []metav1.Condition{
		{Type: v1alpha1.ConditionInitializing, Status: initializing, ObservedGeneration: lifecycle.Generation},
		{Type: v1alpha1.ConditionReady, Status: ready, ObservedGeneration: lifecycle.Generation},
	} {
		condition.Reason, condition.Message = reason, message
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&lifecycle.Status.Conditions, condition)
	}
}

// settleStalled derives the condition Stalled. It is True while the turn of a current initializer or the cleanup of a participant is
// stalled, and after the initialization failed: tools that wait for Ready need not wait longer. The end of a turn ends its stall.
func settleStalled(lifecycle *nsinit.NamespaceLifecycle, now time.Time) {
	terminating := lifecycle.DeletionTimestamp != nil
	asked := lifecycle.Status.CurrentInitializers
	if terminating {
		asked = lifecycle.Participants()
	}
	var stalled []*v1alpha1.InitializerStatus
	for i := range lifecycle.Status.Initializers {
		entry := &lifecycle.Status.Initializers[i]
		if !slices.Contains(asked, entry.Name) {
			entry.StalledTime = nil
		}
		if entry.StalledTime != nil && (entry.StartTime != nil || terminating) {
			stalled = append(stalled, entry)
		}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: lifecycle.Generation}
	before := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionStalled)
	switch failed := lifecycle.Failure(); {
	case len(stalled) > 0 && terminating:
		condition.Reason, condition.Message = v1alpha1.ReasonCleanupTooLong, fmt.Sprintf("%s; check that it runs, and read its log; "+
			"if it does not exist any more, an administrator can run kubectl nsinit finalize %s PARTICIPANT", waitingMessage(lifecycle), lifecycle.Name)
	case failed != nil:
		condition.Reason, condition.Message = v1alpha1.ReasonFailed, fmt.Sprintf("initializer %q failed: %s", lifecycle.FailedInitializer(), failed.Message)
	case len(stalled) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonTurnTooLong, stalledMessage(stalled)
	case before == nil || before.Status == metav1.ConditionFalse:
		return
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonTurnEnded, helper.TurnEnded
	}
	meta.SetStatusCondition(&lifecycle.Status.Conditions, condition)
}

// stalledMessage names the stalled initializers, and how to continue.
func stalledMessage(stalled []*v1alpha1.InitializerStatus) string {
	text, whose := "", "it"
	for i, entry := range stalled[:min(maxNamed, len(stalled))] {
		since := entry.StartTime.UTC().Format(time.RFC3339)
		if i == 0 {
			text = fmt.Sprintf("the turn of initializer %q has lasted since %s", entry.Name, since)
		} else {
			text, whose = text+fmt.Sprintf("; and that of initializer %q since %s", entry.Name, since), "each"
		}
	}
	if others := len(stalled) - maxNamed; others > 0 {
		text += fmt.Sprintf("; and those of %d more", others)
	}
	return fmt.Sprintf("%s: check that %s runs, and read its log; an administrator can skip it in this namespace, or remove it from its configuration", text, whose)
}

// deadline returns when the failurePolicy of an initializer takes effect, or nil if it has none, or no turn.
func deadline(planned *v1alpha1.PlannedInitializer, entry *v1alpha1.InitializerStatus) *metav1.MicroTime {
	if planned == nil || planned.FailurePolicy == nil || planned.TimeoutSeconds == nil || entry == nil || entry.StartTime == nil {
		return nil
	}
	return new(metav1.NewMicroTime(entry.StartTime.Add(time.Duration(*planned.TimeoutSeconds) * time.Second)))
}

// skippedMessage returns why an initializer was skipped, and what it last reported.
func skippedMessage(entry *v1alpha1.InitializerStatus, now time.Time) string {
	why := "skipped before it was done"
	if entry.Deadline != nil && !now.Before(entry.Deadline.Time) {
		why = fmt.Sprintf("skipped at its deadline of %s", entry.Deadline.Sub(entry.StartTime.Time))
	}
	if entry.Message == "" {
		return why
	}
	if room := v1alpha1.MaxMessageLength - len(why) - len("; last report: "); len(entry.Message) > room {
		return why
	}
	return why + "; last report: " + entry.Message
}

// normalize replaces an empty list with nil, removes control characters from the result, and shortens its message to what
// the status of the initializer can have: a failure is never refused for the length of its message.
func normalize(lifecycle *nsinit.NamespaceLifecycle) {
	initializers := lifecycle.Spec.Initializers
	switch {
	case initializers == nil:
	case initializers.Result != nil:
		initializers.Result.Message = printable.Shorten(printable.Lines(initializers.Result.Message), v1alpha1.MaxMessageLength)
	case len(initializers.Pending) == 0:
		lifecycle.Spec.Initializers = nil
	}
}
