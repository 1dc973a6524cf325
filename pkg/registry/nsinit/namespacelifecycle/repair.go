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

// repairer is the actor of a repair in the record's status.
const repairer = "nsinit-apiserver"

// RepairDue says whether the first pending initializer of a record should have been dropped
// long ago: its failurePolicy is Ignore, and both the given bound and its own deadline are
// past, whatever clock stamped the beginning of the turn. The controller drops it at its
// deadline; that it did not shows that it is not there.
func RepairDue(record *nsinit.NamespaceLifecycle, now time.Time, bound time.Duration) bool {
	planned := current(record)
	if bound <= 0 || record.DeletionTimestamp != nil || helper.Failure(record) != nil || planned == nil ||
		planned.FailurePolicy == nil || *planned.FailurePolicy != nsinit.Ignore {
		return false
	}
	due, start := deadlineTime(record), record.Spec.Initializers.TurnStartTime
	return due != nil && now.After(due.Add(timing.MaxClockSkew)) && now.After(start.Add(bound+timing.MaxClockSkew))
}

// Repair drops the first pending initializer of a record if that is due.
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
