/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"time"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// repairer is the actor of a repair in the status.
const repairer = "nsinit-apiserver"

// RepairDue returns whether a GET has to skip the first pending initializer: its failurePolicy is
// Ignore, and both its deadline and the given bound have passed, even if the clocks differ by
// timing.MaxClockSkew. The controller, which skips it at its deadline, does not run then.
func RepairDue(lifecycle *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) bool {
	planned := current(lifecycle)
	if bound <= 0 || lifecycle.DeletionTimestamp != nil || helper.Failure(lifecycle) != nil || planned == nil ||
		planned.FailurePolicy == nil || *planned.FailurePolicy != nsinit.Ignore {
		return false
	}
	due, start := deadlineTime(lifecycle), lifecycle.Spec.Initializers.TurnStartTime
	return due != nil && now.After(due.Add(timing.MaxClockSkew)) && now.After(start.Add(bound+timing.MaxClockSkew))
}

// Repair skips the first pending initializer if RepairDue returns true.
func Repair(lifecycle *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) {
	if !RepairDue(lifecycle, now, bound) {
		return
	}
	old := lifecycle.DeepCopy()
	lifecycle.Spec.Skipped = append(lifecycle.Spec.Skipped, lifecycle.Spec.Initializers.Pending[0].Name)
	lifecycle.Spec.Initializers.Pending = lifecycle.Spec.Initializers.Pending[1:]
	normalize(lifecycle)
	advance(lifecycle, old, now, repairer)
}
