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

// turn is the state of the current initializer's turn, which depends on the time.
type turn struct {
	// overdue says that the deadline is past, so that the failurePolicy takes effect.
	overdue bool
	// stalled says that the turn has lasted longer than --stalled-after.
	stalled bool
	// wake is the time until overdue or stalled may become true. 0: never.
	wake time.Duration
}

// turns stores when this process first saw each turn. The clock of the server that wrote the start
// time may differ. The time since this process saw the turn is never longer than the turn.
type turns struct {
	mu   sync.Mutex
	seen map[string]sighting
}

type sighting struct {
	lifecycle   types.UID
	initializer string
	at          time.Time
}

// firstSeen returns when the current turn of a lifecycle was first seen, which may be now. It
// removes the entry of a lifecycle that is nil or has no current turn.
func (t *turns) firstSeen(name string, lifecycle *v1alpha1.NamespaceLifecycle, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !hasTurn(lifecycle) {
		delete(t.seen, name)
		return now
	}
	if seen, ok := t.seen[name]; ok && seen.lifecycle == lifecycle.UID && seen.initializer == helper.Current(lifecycle) {
		return seen.at
	}
	t.seen[name] = sighting{lifecycle: lifecycle.UID, initializer: helper.Current(lifecycle), at: now}
	return now
}

// hasTurn says whether an initializer has its turn.
func hasTurn(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return lifecycle != nil && lifecycle.DeletionTimestamp == nil && helper.Failure(lifecycle) == nil && helper.Current(lifecycle) != ""
}

// measure returns the state of the current turn, which was first seen at a time.
func measure(lifecycle *v1alpha1.NamespaceLifecycle, seen, now time.Time, stalledAfter time.Duration) turn {
	var t turn
	if !hasTurn(lifecycle) {
		return t
	}
	at := func(after time.Duration) bool {
		left := lasts(lifecycle, seen, after).Sub(now)
		if left > 0 && (t.wake == 0 || left < t.wake) {
			t.wake = left
		}
		return left <= 0
	}
	if planned := helper.Planned(lifecycle, helper.Current(lifecycle)); planned != nil && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil {
		t.overdue = at(time.Duration(*planned.TimeoutSeconds) * time.Second)
	}
	if stalledAfter > 0 {
		t.stalled = at(stalledAfter)
	}
	return t
}

// lasts returns when a turn has certainly lasted for a duration, by the clock of this process or by
// that of the server, which may be behind.
func lasts(lifecycle *v1alpha1.NamespaceLifecycle, seen time.Time, long time.Duration) time.Time {
	here := seen.Add(long)
	if began := lifecycle.Spec.Initializers.TurnStartTime; began != nil {
		if there := began.Add(long + timing.MaxClockSkew); there.Before(here) {
			return there
		}
	}
	return here
}
