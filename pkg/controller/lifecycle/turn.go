/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// shortTurn is how long a turn lasts before conditions and events report it. Most turns are shorter, and each report is a
// request.
const shortTurn = time.Second

// timers is the state of the turns of a lifecycle, which depends on the time. The names are in the order
// of the plan.
type timers struct {
	// long are the initializers whose turn has lasted longer than shortTurn.
	long []string
	// overdue are the initializers whose deadline is past, so that their failurePolicy takes effect.
	overdue []string
	// stalled are the initializers whose turn has lasted longer than --stalled-after.
	stalled []string
	// wake is the time until another one may become long, overdue or stalled. 0: never.
	wake time.Duration
}

// turns stores when this process first saw each turn. The clock of the server that wrote the start
// time may differ. The time since this process saw the turn is never longer than the turn.
type turns struct {
	mu   sync.Mutex
	seen map[string]sightings
}

// sightings are the times at which the turns of one lifecycle were first seen, by initializer.
type sightings struct {
	lifecycle types.UID
	at        map[string]time.Time
	// announced are the initializers whose turn an event has reported.
	announced sets.Set[string]
}

// firstSeen returns when each current turn of a lifecycle was first seen, which may be now. It
// removes the entry of a lifecycle that is nil or has no current turn.
func (t *turns) firstSeen(name string, lifecycle *v1alpha1.NamespaceLifecycle, now time.Time) map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !hasTurn(lifecycle) {
		delete(t.seen, name)
		return nil
	}
	before, after := t.seen[name], sightings{lifecycle: lifecycle.UID, at: map[string]time.Time{}, announced: sets.New[string]()}
	for _, initializer := range helper.Acting(lifecycle) {
		after.at[initializer] = now
		if before.lifecycle != lifecycle.UID {
			continue
		}
		if seen, ok := before.at[initializer]; ok {
			after.at[initializer] = seen
		}
		if before.announced.Has(initializer) {
			after.announced.Insert(initializer)
		}
	}
	t.seen[name] = after
	return after.at
}

// announce returns those of the initializers whose turn was not announced before.
func (t *turns) announce(name string, lifecycle types.UID, initializers []string) (first []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[name]
	if s.lifecycle != lifecycle {
		s = sightings{lifecycle: lifecycle, announced: sets.New[string]()}
		t.seen[name] = s
	}
	for _, initializer := range initializers {
		if !s.announced.Has(initializer) {
			s.announced.Insert(initializer)
			first = append(first, initializer)
		}
	}
	return first
}

// hasTurn says whether an initializer has its turn.
func hasTurn(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return lifecycle != nil && len(helper.Acting(lifecycle)) > 0
}

// measure returns the state of the current turns, which were first seen at these times.
func measure(lifecycle *v1alpha1.NamespaceLifecycle, seen map[string]time.Time, now time.Time, stalledAfter time.Duration) timers {
	var t timers
	if !hasTurn(lifecycle) {
		return t
	}
	for _, name := range helper.Acting(lifecycle) {
		past := func(after time.Duration) bool {
			left := lasts(lifecycle, name, seen[name], after).Sub(now)
			if left > 0 && (t.wake == 0 || left < t.wake) {
				t.wake = left
			}
			return left <= 0
		}
		if past(shortTurn) {
			t.long = append(t.long, name)
		}
		planned := helper.Planned(lifecycle, name)
		if planned != nil && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil && past(time.Duration(*planned.TimeoutSeconds)*time.Second) {
			t.overdue = append(t.overdue, name)
		}
		if stalledAfter > 0 && past(stalledAfter) {
			t.stalled = append(t.stalled, name)
		}
	}
	return t
}

// overdueWith returns the overdue initializers that have a failurePolicy.
func overdueWith(s state, policy v1alpha1.FailurePolicyType) []string {
	var names []string
	for _, name := range s.timers.overdue {
		if *helper.Planned(s.lifecycle, name).FailurePolicy == policy {
			names = append(names, name)
		}
	}
	return names
}

// lasts returns when the turn of an initializer has certainly lasted for a duration, by the clock of this
// process or by that of the server, which may be behind.
func lasts(lifecycle *v1alpha1.NamespaceLifecycle, name string, seen time.Time, long time.Duration) time.Time {
	here := seen.Add(long)
	if began := helper.TurnStart(lifecycle, name); began != nil {
		if there := began.Add(long + timing.MaxClockSkew); there.Before(here) {
			return there
		}
	}
	return here
}
