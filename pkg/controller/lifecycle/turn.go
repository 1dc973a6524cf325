/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// turn is what time has made of the turn of a record's first pending initializer.
type turn struct {
	// overdue: its deadline is past, and its failurePolicy takes effect.
	overdue bool
	// stalled: it has lasted for longer than the installation finds usual.
	stalled bool
	// wake is how long it takes until one of them may become true. Zero: never.
	wake time.Duration
}

// turns remembers when this process first saw each turn. The server that stamped the
// beginning may have another clock; the time that passed here since the turn was seen is
// never more than the time that it has lasted.
type turns struct {
	mu   sync.Mutex
	seen map[string]sighting
}

type sighting struct {
	record      types.UID
	initializer string
	at          time.Time
}

// look returns when the current turn of a record was first seen, which may be now. A record
// that is nil, or in which nobody has a turn, is forgotten.
func (t *turns) look(name string, record *v1alpha1.NamespaceLifecycle, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !hasTurn(record) {
		delete(t.seen, name)
		return now
	}
	if was, ok := t.seen[name]; ok && was.record == record.UID && was.initializer == helper.Current(record) {
		return was.at
	}
	t.seen[name] = sighting{record: record.UID, initializer: helper.Current(record), at: now}
	return now
}

// hasTurn says whether an initializer has its turn.
func hasTurn(record *v1alpha1.NamespaceLifecycle) bool {
	return record != nil && record.DeletionTimestamp == nil && helper.Failure(record) == nil && helper.Current(record) != ""
}

// measure tells what has become of a turn by now that was first seen at a time.
func measure(record *v1alpha1.NamespaceLifecycle, seen, now time.Time, stalledAfter time.Duration) turn {
	var t turn
	if !hasTurn(record) {
		return t
	}
	at := func(after time.Duration) bool {
		left := lasts(record, seen, after).Sub(now)
		if left > 0 && (t.wake == 0 || left < t.wake) {
			t.wake = left
		}
		return left <= 0
	}
	if planned := helper.Planned(record, helper.Current(record)); planned != nil && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil {
		t.overdue = at(time.Duration(*planned.TimeoutSeconds) * time.Second)
	}
	if stalledAfter > 0 {
		t.stalled = at(stalledAfter)
	}
	return t
}

// lasts returns when a turn has certainly lasted for a time: since it was first seen here, or
// since the server says that it began, whose clock may be behind.
func lasts(record *v1alpha1.NamespaceLifecycle, seen time.Time, long time.Duration) time.Time {
	here := seen.Add(long)
	if began := record.Spec.Initializers.TurnStartTime; began != nil {
		if there := began.Add(long + timing.MaxClockSkew); there.Before(here) {
			return there
		}
	}
	return here
}
