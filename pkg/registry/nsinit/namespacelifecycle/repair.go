/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"slices"
	"time"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// repairer is the actor of a repair in the status.
const repairer = "nsinit-apiserver"

// RepairDue returns the current initializers that a GET has to skip: their failurePolicy is Ignore, and
// both their deadline and the given bound have passed, even if the clocks differ by
// timing.MaxClockSkew. The controller, which skips them at their deadlines, does not run then.
func RepairDue(lifecycle *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) []string {
	if bound <= 0 || lifecycle.DeletionTimestamp != nil || lifecycle.Failure() != nil {
		return nil
	}
	var names []string
	for _, name := range lifecycle.CurrentInitializers() {
		planned, entry := lifecycle.Planned(name), lifecycle.Entry(name)
		due := deadline(planned, entry)
		if due != nil && *planned.FailurePolicy == v1alpha1.Ignore && now.After(due.Add(timing.MaxClockSkew)) &&
			now.After(entry.StartTime.Add(bound+timing.MaxClockSkew)) {
			names = append(names, name)
		}
	}
	return names
}

// Repair skips the initializers that RepairDue returns.
func Repair(lifecycle *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) {
	due := RepairDue(lifecycle, now, bound)
	if len(due) == 0 {
		return
	}
	initializers := lifecycle.Spec.Initializers
	lifecycle.Spec.Skipped = append(lifecycle.Spec.Skipped, due...)
	initializers.Pending = slices.DeleteFunc(initializers.Pending, func(p v1alpha1.NamespaceInitializer) bool { return slices.Contains(due, p.Name) })
	normalize(lifecycle)
	settle(lifecycle, now, repairer)
}
