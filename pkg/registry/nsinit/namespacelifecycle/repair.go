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
func RepairDue(record *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) bool {
	planned := current(record)
	if bound <= 0 || record.DeletionTimestamp != nil || helper.Failure(record) != nil || planned == nil ||
		planned.FailurePolicy == nil || *planned.FailurePolicy != nsinit.Ignore {
		return false
	}
	due, start := deadlineTime(record), record.Spec.Initializers.TurnStartTime
	return due != nil && now.After(due.Add(timing.MaxClockSkew)) && now.After(start.Add(bound+timing.MaxClockSkew))
}

// Repair skips the first pending initializer if RepairDue returns true.
func Repair(record *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) {
	if !RepairDue(record, now, bound) {
		return
	}
	old := record.DeepCopy()
	record.Spec.Skipped = append(record.Spec.Skipped, record.Spec.Initializers.Pending[0].Name)
	record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
	normalize(record)
	advance(record, old, now, repairer)
}
