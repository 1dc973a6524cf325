/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// Reasons of events on namespaces.
const (
	// eventRunning: the turn of an initializer has lasted two seconds.
	eventRunning = "InitializerRunning"
	// eventDone: an initializer is done after a turn of at least two seconds.
	eventDone = "InitializerDone"
	// eventSkipped: an initializer was skipped at its deadline, or by a user.
	eventSkipped = "InitializerSkipped"
	// eventFailed: an initializer failed, so the initialization failed.
	eventFailed = "InitializerFailed"
	// eventStalled: the turn of an initializer lasts longer than --stalled-after.
	eventStalled = "InitializerStalled"
	// eventParticipantStalled: the cleanup of a participant lasts longer than --stalled-after.
	eventParticipantStalled = "ParticipantStalled"
)

// EventLimits keeps the recorder from dropping or merging the events of one namespace. There is at most one
// event for each transition of an initializer.
func EventLimits() record.CorrelatorOptions {
	const most = 4 * 64 // a configuration holds 64 initializers
	return record.CorrelatorOptions{BurstSize: most, MaxEvents: most}
}

// event is one event on a namespace.
type event struct {
	kind, reason, message string
}

// transitions returns an event for each initializer that was skipped or failed between two versions of a lifecycle, or ended a turn that
// lasted, and one for a new lifecycle with the condition PlanDegraded. The old version of a new lifecycle is nil.
func transitions(oldLifecycle, newLifecycle *v1alpha1.NamespaceLifecycle) []event {
	oldStates := map[string]v1alpha1.InitializerState{}
	if oldLifecycle != nil && oldLifecycle.UID == newLifecycle.UID {
		for _, entry := range oldLifecycle.Status.Initializers {
			oldStates[entry.Name] = entry.State
		}
	}
	var all []event
	degraded := meta.FindStatusCondition(newLifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	if degraded != nil && (oldLifecycle == nil || oldLifecycle.UID != newLifecycle.UID) {
		all = append(all, event{corev1.EventTypeWarning, degraded.Type, degraded.Message})
	}
	for _, entry := range newLifecycle.Status.Initializers {
		if entry.State == oldStates[entry.Name] {
			continue
		}
		initializer := fmt.Sprintf("Initializer %q", entry.Name)
		switch entry.State {
		case v1alpha1.InitializerWaiting, v1alpha1.InitializerRunning: // announce records a turn that lasts
		case v1alpha1.InitializerDone:
			if entry.StartTime == nil { // it was removed before it had a turn
				continue
			}
			if took := entry.EndTime.Sub(entry.StartTime.Time).Round(time.Millisecond); took >= reportWaitAfter {
				all = append(all, event{corev1.EventTypeNormal, eventDone, fmt.Sprintf("%s is done after %s (user %q)", initializer, took, entry.LastActor)})
			}
		case v1alpha1.InitializerSkipped:
			all = append(all, event{corev1.EventTypeWarning, eventSkipped, fmt.Sprintf("%s was skipped by user %q: %s", initializer, entry.LastActor, entry.Message)})
		case v1alpha1.InitializerFailed:
			all = append(all, event{corev1.EventTypeWarning, eventFailed, fmt.Sprintf("%s failed (user %q): %s", initializer, entry.LastActor, entry.Message)})
		}
	}
	return all
}

// recordEvents records the transitions of a lifecycle as events on its namespace. Transitions
// without a leader are only in the lifecycle's status.
func (c *Controller) recordEvents(oldLifecycle, newLifecycle *v1alpha1.NamespaceLifecycle) {
	for _, e := range transitions(oldLifecycle, newLifecycle) {
		c.Events.Event(namespaceOf(newLifecycle), e.kind, e.reason, e.message)
	}
}

// announce records an event for each turn that is reported, once. The cache may show that a turn has ended since, with an event.
func (c *Controller) announce(s state) {
	for _, initializer := range c.turns.announce(s.lifecycle, s.timers.long) {
		if current, err := c.lifecycles.Get(s.lifecycle.Name); err == nil && current.UID == s.lifecycle.UID {
			if entry := helper.Entry(current, initializer); entry != nil && entry.EndTime != nil {
				continue
			}
		}
		c.Events.Event(namespaceOf(s.lifecycle), corev1.EventTypeNormal, eventRunning, fmt.Sprintf("Initializer %q has its turn", initializer))
	}
}

// namespaceOf returns a reference to the namespace of a lifecycle.
func namespaceOf(lifecycle *v1alpha1.NamespaceLifecycle) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: lifecycle.Name, UID: lifecycle.Spec.NamespaceUID}
}
