/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// turns returns a finding for each initializer that has its turn. The length of each turn decides.
func (o Observation) turns(lifecycle *v1alpha1.NamespaceLifecycle) []Finding {
	var found []Finding
	acting := helper.Acting(lifecycle)
	for _, name := range acting {
		message := helper.Message(lifecycle)
		if len(acting) > 1 {
			message = waiting(lifecycle, name)
		}
		if after := successors(lifecycle, name); len(after) > 0 {
			message += "; after it: " + strings.Join(after, ", ")
		}
		var since *metav1.Time
		if start := helper.TurnStart(lifecycle, name); start != nil {
			since = &metav1.Time{Time: start.Time}
		}
		state := Waiting
		if helper.IsStalled(lifecycle, name) {
			state = Stuck
		}
		if name == v1alpha1.InitializerLifecycle { // nsinit-controller-manager acts
			found = append(found, o.finding(InitializerPending, state, since, message, nil))
			continue
		}
		found = append(found, o.controlled(o.initializerActor(name), InitializerPending, state, since, message,
			words{"INITIALIZER": {name}, "PODS": {actorNamespace(helper.Entry(lifecycle, name))}}))
	}
	return found
}

// waiting describes the turn of one of several initializers that act at the same time.
func waiting(lifecycle *v1alpha1.NamespaceLifecycle, name string) string {
	text, entry := fmt.Sprintf("waiting for initializer %q", name), helper.Entry(lifecycle, name)
	if entry == nil {
		return text
	}
	if planned := helper.Planned(lifecycle, name); entry.Deadline != nil && planned != nil && planned.FailurePolicy != nil {
		text += fmt.Sprintf(" until %s, its deadline with failurePolicy %s", entry.Deadline.UTC().Format(time.RFC3339), *planned.FailurePolicy)
	}
	if entry.Message != "" {
		text += ": " + entry.Message
	}
	return text
}

// successors returns the pending initializers that wait for one, directly or not, in the order of the plan. One
// with an ordering is described with all that it waits for.
func successors(lifecycle *v1alpha1.NamespaceLifecycle, name string) []string {
	reached := []string{name}
	for i := 0; i < len(reached); i++ {
		for _, other := range helper.Pending(lifecycle) {
			if !slices.Contains(reached, other) && slices.Contains(helper.WaitsFor(lifecycle, other), reached[i]) {
				reached = append(reached, other)
			}
		}
	}
	var described []string
	for _, other := range helper.Pending(lifecycle) {
		if other == name || !slices.Contains(reached, other) {
			continue
		}
		if planned := helper.Planned(lifecycle, other); planned != nil && planned.Ordering != nil {
			other += " (waits for " + strings.Join(helper.WaitsFor(lifecycle, other), ", ") + ")"
		}
		described = append(described, other)
	}
	return described
}
