/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/controller/requiredobjects"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// objects is what an initialized namespace lacks of the required objects. It depends on the time.
type objects struct {
	missing []requiredobjects.Missing
	// wait says that the gate stays closed, until the objects exist or the bound is past.
	wait bool
	// lasts says that the wait has lasted so long that the conditions report it.
	lasts bool
	// since is when the initializers were done.
	since time.Time
	// timeout and longest are the bounds of the wait.
	timeout, longest time.Duration
	// wake is the time until wait or lasts may change. 0: only with an event.
	wake time.Duration
}

// waits stores when this process first saw that an initialized namespace lacks a required object. As with
// turns, the clock of the server that wrote the end of the last turn may differ.
type waits struct {
	mu   sync.Mutex
	seen map[string]sighting
}

// sighting is when the wait of a lifecycle was first seen.
type sighting struct {
	lifecycle types.UID
	at        time.Time
}

// firstSeen returns when the wait of a lifecycle was first seen, which may be now.
func (w *waits) firstSeen(name string, lifecycle *v1alpha1.NamespaceLifecycle, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen, ok := w.seen[name]; ok && seen.lifecycle == lifecycle.UID {
		return seen.at
	}
	w.seen[name] = sighting{lifecycle: lifecycle.UID, at: now}
	return now
}

// forget removes the entry of a namespace that does not wait.
func (w *waits) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, name)
}

// measureObjects sets s.objects. It sends requests only if the bound is past, or if an object may be
// that of a former namespace.
func (c *Controller) measureObjects(ctx context.Context, name string, s *state) {
	s.objects = objects{}
	closed := isInitialized(*s) && helper.IsClosed(s.namespace)
	if c.Required != nil && (closed || isInitialized(*s) && openedWithout(s.namespace)) {
		s.objects.missing = c.Required.Missing(ctx, s.namespace)
	}
	if len(s.objects.missing) == 0 || !closed {
		c.waits.forget(name)
		return
	}
	now := c.Clock.Now()
	begun := c.waits.firstSeen(name, s.lifecycle, now)
	s.objects.since, s.objects.timeout, s.objects.longest = initializedAt(s.lifecycle), c.Required.Timeout, c.Required.Longest()
	if there := s.objects.since.Add(timing.MaxClockSkew); there.Before(begun) {
		begun = there // this process restarted
	}
	left := c.Required.Until(s.objects.missing, begun).Sub(now)
	quiet := begun.Add(reportWaitAfter).Sub(now)
	if left <= 0 {
		s.objects.missing = c.Required.Confirm(ctx, s.namespace, s.objects.missing)
		return
	}
	s.objects.wait, s.objects.lasts, s.objects.wake = true, quiet <= 0, left
	if quiet > 0 {
		s.objects.wake = min(left, quiet)
	}
}

// isInitialized says whether every initializer of a live namespace is done.
func isInitialized(s state) bool {
	return s.namespace != nil && s.lifecycle != nil && s.namespace.UID == s.lifecycle.Spec.NamespaceUID &&
		s.namespace.DeletionTimestamp == nil && s.lifecycle.DeletionTimestamp == nil &&
		len(helper.Pending(s.lifecycle)) == 0 && helper.Failure(s.lifecycle) == nil
}

// initializedAt returns when the last initializer was done, by the clock of the server. Without
// initializers, that is when the lifecycle was created.
func initializedAt(lifecycle *v1alpha1.NamespaceLifecycle) time.Time {
	at := lifecycle.CreationTimestamp.Time
	for _, entry := range lifecycle.Status.Initializers {
		if entry.EndTime != nil && entry.EndTime.After(at) {
			at = entry.EndTime.Time
		}
	}
	return at
}

// openedWithout says whether the controller opened a namespace without a required object, which did not
// appear since.
func openedWithout(namespace *corev1.Namespace) bool {
	ready := utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady)
	return !helper.IsClosed(namespace) && ready != nil && ready.Reason == v1alpha1.ReasonObjectsMissing
}

// waiting returns the report on a namespace that waits for required objects, once the wait lasts.
func (o objects) waiting() *report {
	if !o.lasts {
		return nil
	}
	return &report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonObjectsMissing,
		message: fmt.Sprintf("waiting for %s, since %s; without it, the namespace opens after %s in which no such object appears in any namespace, and after %s at the latest",
			requiredobjects.Describe(o.missing), o.since.UTC().Format(time.RFC3339), o.timeout, o.longest)}
}

// opened returns the report on a namespace whose gate is open, perhaps without required objects.
func (o objects) opened(lifecycle *v1alpha1.NamespaceLifecycle) report {
	report := opened(lifecycle)
	if len(o.missing) > 0 {
		report.reason = v1alpha1.ReasonObjectsMissing
		report.message += fmt.Sprintf("; the namespace was opened without %s; see: kubectl nsinit why %s", requiredobjects.Describe(o.missing), lifecycle.Name)
	}
	return report
}

// recordOpening records the event of an opened gate, and counts required objects that did not exist.
func (c *Controller) recordOpening(namespace *corev1.Namespace, missing []requiredobjects.Missing, report report) {
	kind := corev1.EventTypeNormal
	for _, object := range missing {
		kind = corev1.EventTypeWarning
		c.Metrics.without.WithLabelValues(object.Object.String()).Inc()
	}
	c.Events.Event(namespace, kind, report.reason, "The namespace is open: "+report.message)
}

// objectChanged re-queues a namespace that may wait for a required object.
func (c *Controller) objectChanged(name string) {
	if namespace, err := c.namespaces.Get(name); err == nil && (helper.IsClosed(namespace) || openedWithout(namespace)) {
		c.queue.Add(name)
	}
}
