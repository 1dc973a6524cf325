/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Reasons of events on namespaces.
const (
	eventRunning = "InitializerRunning"
	eventDone    = "InitializerDone"
	eventSkipped = "InitializerSkipped"
	eventFailed  = "InitializerFailed"
	eventStalled = "InitializerStalled"
)

// EventLimits keeps the recorder from dropping or merging the events of one namespace, which
// are one for each initializer's transition.
func EventLimits() record.CorrelatorOptions {
	const most = 4 * 64 // a configuration holds 64 initializers
	return record.CorrelatorOptions{BurstSize: most, MaxEvents: most}
}

// event is one event on a namespace.
type event struct {
	kind, reason, message string
}

// transitions returns what happened to the initializers of a record between two states of
// it. There is no old state of a record that is new.
func transitions(old, updated *v1alpha1.NamespaceLifecycle) []event {
	before := map[string]v1alpha1.InitializerState{}
	if old != nil && old.UID == updated.UID {
		for _, entry := range old.Status.Initializers {
			before[entry.Name] = entry.State
		}
	}
	var all []event
	for _, entry := range updated.Status.Initializers {
		if entry.State == before[entry.Name] {
			continue
		}
		which := fmt.Sprintf("initializer %q", entry.Name)
		switch entry.State {
		case v1alpha1.InitializerWaiting:
		case v1alpha1.InitializerRunning:
			all = append(all, event{corev1.EventTypeNormal, eventRunning, "It is the turn of " + which})
		case v1alpha1.InitializerDone:
			all = append(all, event{corev1.EventTypeNormal, eventDone, fmt.Sprintf("The %s is done%s, says %q", which, took(entry), entry.LastActor)})
		case v1alpha1.InitializerSkipped:
			all = append(all, event{corev1.EventTypeWarning, eventSkipped, fmt.Sprintf("The %s was skipped by %q: %s", which, entry.LastActor, entry.Message)})
		case v1alpha1.InitializerFailed:
			all = append(all, event{corev1.EventTypeWarning, eventFailed, fmt.Sprintf("The %s has failed, says %q: %s", which, entry.LastActor, entry.Message)})
		}
	}
	return all
}

// took tells how long an initializer had its turn, if it had one.
func took(entry v1alpha1.InitializerStatus) string {
	if entry.StartTime == nil || entry.EndTime == nil {
		return ""
	}
	return " after " + entry.EndTime.Sub(entry.StartTime.Time).Round(time.Millisecond).String()
}

// tell records the transitions of a record as events on its namespace. Those that happened
// while no instance led are in the record's status, and in no event.
func (c *Controller) tell(old, updated *v1alpha1.NamespaceLifecycle) {
	for _, e := range transitions(old, updated) {
		c.Events.Event(namespaceOf(updated), e.kind, e.reason, e.message)
	}
}

// namespaceOf refers to the namespace that a record describes.
func namespaceOf(record *v1alpha1.NamespaceLifecycle) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: record.Name, UID: record.Spec.NamespaceUID}
}
