/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
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
	// stalled are the initializers whose turn, or the participants whose cleanup, has lasted longer than --stalled-after.
	stalled []string
	// wake is the time until another one may become long, overdue or stalled, or until the wait for required objects ends or lasts. 0:
	// never.
	wake time.Duration
}

// objectsTurn stands for the wait for required objects among the initializers of a lifecycle.
const objectsTurn = ""

const (
	// outageGap is the longest time between two failed requests of one outage. One failure may be a restart of a server.
	outageGap = 2 * readTimeout
	// grace is what is left of a deadline after an outage, at least. Until then, each initializer that uses the SDK has tried again.
	grace = time.Minute
)

// turns stores when this process first saw each turn. The clock of the server that wrote the start
// time may differ. The time since this process saw the turn is never longer than the turn.
type turns struct {
	mu   sync.Mutex
	seen map[string]sightings
	outages
	// failed is when a request last failed.
	failed time.Time
}

// outages are the times in which this process could not read or write lifecycles or namespaces. Initializers can hardly act then.
type outages struct {
	// lost is how long they lasted in total, and end when the last one was last seen.
	lost time.Duration
	end  time.Time
}

// sightings are the times at which the turns of one lifecycle were first seen, by initializer.
type sightings struct {
	lifecycle types.UID
	at        map[string]sighting
	// announced are the initializers whose turn an event has reported.
	announced sets.Set[string]
}

// sighting is when a turn was first seen, and how long outages had lasted until then.
type sighting struct {
	at   time.Time
	lost time.Duration
}

// interrupt records that a request failed because a server does not work.
func (t *turns) interrupt(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gap := now.Sub(t.failed); !t.failed.IsZero() && gap < outageGap {
		t.lost, t.end = t.lost+max(gap, 0), later(t.end, now)
	}
	t.failed = later(t.failed, now)
}

// interrupted returns the outages until now.
func (t *turns) interrupted() outages {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outages
}

// deadline returns when a turn has lasted for a timeout, without outages. After the last one, an initializer has a minute, or its timeout.
func (o outages) deadline(turn sighting, timeout time.Duration) time.Time {
	return later(turn.at.Add(timeout+o.lost-turn.lost), o.end.Add(min(timeout, grace)))
}

// firstSeen returns when each of the current turns of a lifecycle was first seen, which may be now. It forgets all others.
func (t *turns) firstSeen(name string, lifecycle *v1alpha1.NamespaceLifecycle, current []string, now time.Time) map[string]sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lifecycle == nil || len(current) == 0 {
		delete(t.seen, name)
		return nil
	}
	before, after := t.seen[name], sightings{lifecycle: lifecycle.UID, at: map[string]sighting{}}
	if before.lifecycle != lifecycle.UID {
		before = sightings{}
	}
	for _, initializer := range current {
		after.at[initializer] = cmp.Or(before.at[initializer], sighting{now, t.lost})
	}
	after.announced = before.announced.Intersection(sets.New(current...))
	t.seen[name] = after
	return after.at
}

// announce returns those of the initializers of a lifecycle whose turn was seen and not announced before.
func (t *turns) announce(lifecycle *v1alpha1.NamespaceLifecycle, initializers []string) (first []string) {
	if len(initializers) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[lifecycle.Name]
	for _, initializer := range initializers {
		if s.lifecycle == lifecycle.UID && !s.announced.Has(initializer) {
			s.announced.Insert(initializer)
			first = append(first, initializer)
		}
	}
	return first
}

// measureTurns returns the state of the current turns, which were first seen at these times. The time of outages does not count for a
// deadline: after an outage or a restored storage, no namespace is deleted or opened because of the time before.
func measureTurns(lifecycle *v1alpha1.NamespaceLifecycle, seen map[string]sighting, outages outages, now time.Time, stalledAfter time.Duration) timers {
	var t timers
	if lifecycle == nil {
		return t
	}
	past := func(at time.Time) bool {
		left := at.Sub(now)
		if left > 0 && (t.wake == 0 || left < t.wake) {
			t.wake = left
		}
		return left <= 0
	}
	if names := helper.Participants(lifecycle); lifecycle.DeletionTimestamp != nil && len(names) > 0 && stalledAfter > 0 && past(lifecycle.DeletionTimestamp.Add(stalledAfter)) {
		t.stalled = names
	}
	for _, name := range helper.Acting(lifecycle) {
		if past(lasts(lifecycle, name, seen[name].at, reportWaitAfter)) {
			t.long = append(t.long, name)
		}
		planned := helper.Planned(lifecycle, name)
		if planned != nil && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil &&
			past(outages.deadline(seen[name], time.Duration(*planned.TimeoutSeconds)*time.Second)) {
			t.overdue = append(t.overdue, name)
		}
		if stalledAfter > 0 && past(lasts(lifecycle, name, seen[name].at, stalledAfter)) {
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
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

// stalled returns the initializers and participants that have taken too long, and which the status does not show as stalled. A participant
// that an administrator added has no entry in the status.
func stalled(s state) []string {
	return slices.DeleteFunc(slices.Clone(s.timers.stalled), func(name string) bool {
		return helper.IsStalled(s.lifecycle, name) || helper.Entry(s.lifecycle, name) == nil
	})
}

// reportStall marks initializers or participants as stalled. The server derives the condition Stalled, which an event repeats.
func (c *Controller) reportStall(ctx context.Context, s state) error {
	lifecycle, names := s.lifecycle.DeepCopy(), stalled(s)
	for _, name := range names {
		if entry := helper.Entry(lifecycle, name); entry != nil {
			entry.StalledTime = new(metav1.NewMicroTime(c.Clock.Now()))
		}
	}
	// gofail: var lifecycleBeforeReportStall struct{}
	updated, err := c.client.UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{})
	if err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot report that %q are stalled: %w", names, err))
	}
	if condition := helper.Stall(updated); condition != nil {
		reason := eventStalled
		if updated.DeletionTimestamp != nil {
			reason = eventParticipantStalled
		}
		c.Events.Event(namespaceOf(s.lifecycle), corev1.EventTypeWarning, reason, condition.Message)
	}
	return nil
}
