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

// reportWaitAfter is how long a namespace waits for something before conditions and events report it. Most waits are shorter, and
// each report is a request.
const reportWaitAfter = 2 * time.Second

// timers is the state of the turns of a lifecycle, which depends on the time. The names are in the order
// of the plan.
type timers struct {
	// long are the initializers whose turn is reported.
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
	// announced are the initializers whose turn an event has reported, and ended those whose turn the watch has shown to be over.
	announced, ended sets.Set[string]
}

// firstSeen returns when each current turn of a lifecycle was first seen, which may be now. It
// removes the entry of a lifecycle that is nil or has no current turn, unless the end of a turn is not recorded yet.
func (t *turns) firstSeen(name string, lifecycle *v1alpha1.NamespaceLifecycle, now time.Time) map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, after := t.seen[name], sightings{at: map[string]time.Time{}}
	if lifecycle != nil {
		after.lifecycle = lifecycle.UID
	}
	if before.lifecycle == after.lifecycle {
		after.announced, after.ended = before.announced, before.ended
	}
	if hasTurn(lifecycle) {
		for _, initializer := range helper.Acting(lifecycle) {
			if after.ended.Has(initializer) {
				continue // this version is older
			}
			after.at[initializer] = now
			if seen, ok := before.at[initializer]; ok && before.lifecycle == after.lifecycle {
				after.at[initializer] = seen
			}
		}
	}
	if lifecycle == nil || len(after.at) == 0 && after.announced.Len() == 0 {
		delete(t.seen, name)
		return nil
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
		s = sightings{lifecycle: lifecycle}
	}
	if s.announced == nil {
		s.announced = sets.New[string]()
	}
	for _, initializer := range initializers {
		if !s.announced.Has(initializer) && !s.ended.Has(initializer) {
			s.announced.Insert(initializer)
			first = append(first, initializer)
		}
	}
	t.seen[name] = s
	return first
}

// end stores which turns of a lifecycle are over. Of those that ended now, it returns the initializers whose turn was announced.
func (t *turns) end(lifecycle *v1alpha1.NamespaceLifecycle, entries []v1alpha1.InitializerStatus) sets.Set[string] {
	t.mu.Lock()
	defer t.mu.Unlock()
	announced, s := sets.New[string](), t.seen[lifecycle.Name]
	if s.lifecycle != lifecycle.UID {
		return announced
	}
	s.ended = sets.New[string]()
	for _, entry := range lifecycle.Status.Initializers { // a restored storage can show a turn again that was over
		if entry.EndTime != nil {
			s.ended.Insert(entry.Name)
		}
	}
	for _, entry := range entries {
		if s.announced.Has(entry.Name) {
			s.announced.Delete(entry.Name)
			announced.Insert(entry.Name)
		}
	}
	t.seen[lifecycle.Name] = s
	return announced
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
		if seen[name].IsZero() {
			continue // its turn is over
		}
		past := func(at time.Time) bool {
			left := at.Sub(now)
			if left > 0 && (t.wake == 0 || left < t.wake) {
				t.wake = left
			}
			return left <= 0
		}
		if past(lasts(lifecycle, name, seen[name], reportWaitAfter)) {
			t.long = append(t.long, name)
		}
		planned := helper.Planned(lifecycle, name)
		if planned != nil && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil &&
			past(lasts(lifecycle, name, seen[name], time.Duration(*planned.TimeoutSeconds)*time.Second)) {
			t.overdue = append(t.overdue, name)
		}
		if stalledAfter > 0 && past(lasts(lifecycle, name, seen[name], stalledAfter)) {
			t.stalled = append(t.stalled, name)
		}
	}
	return t
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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
		return earlier(here, began.Add(long+timing.MaxClockSkew))
	}
	return here
}
