/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// objects is what an initialized namespace lacks of the required objects. It depends on the time.
type objects struct {
	missing []*objectWatch
	// wait says that the gate stays closed, until the objects exist or the wait ends.
	wait bool
	// lasts says that the wait has lasted so long that the conditions report it.
	lasts bool
	// since is when the initializers were done.
	since time.Time
	// timeout bounds the wait for an object that appears in no namespace.
	timeout time.Duration
}

// measure sets what depends on the time: s.timers and s.objects. It sends requests only if the wait for objects has ended, or if
// an object may be that of a former namespace.
func (c *Controller) measure(ctx context.Context, name string, s *state) {
	now := c.Clock.Now()
	s.objects = objects{timeout: c.RequiredTimeout}
	closed := isInitialized(*s) && helper.IsClosed(s.namespace)
	if closed || isInitialized(*s) && openedWithout(s.namespace) {
		s.objects.missing = c.missing(ctx, s.namespace)
	}
	var turns []string
	lacks := closed && len(s.objects.missing) > 0
	if lacks {
		turns = []string{objectsTurn}
	} else if s.lifecycle != nil {
		turns = helper.Acting(s.lifecycle)
	}
	seen := c.turns.firstSeen(name, s.lifecycle, turns, now)
	if !lacks {
		s.timers = measureTurns(s.lifecycle, seen, c.turns.interrupted(), now, c.StalledAfter)
		return
	}
	s.objects.since = initializedAt(s.lifecycle)
	begun := earlier(seen[objectsTurn].at, s.objects.since.Add(timing.MaxClockSkew)) // this process may have restarted
	left := c.opensAt(s.objects.missing, begun).Sub(now)
	s.timers = timers{}
	if left <= 0 {
		s.objects.missing = slices.DeleteFunc(s.objects.missing, func(w *objectWatch) bool { return w.read(ctx, s.namespace.Name) })
		return
	}
	quiet := begun.Add(reportWaitAfter).Sub(now)
	s.objects.wait, s.objects.lasts, s.timers.wake = true, quiet <= 0, left
	if quiet > 0 {
		s.timers.wake = min(left, quiet)
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
		message: fmt.Sprintf("waiting for %s, since %s; without it, the namespace opens after %s in which no such object appears in any namespace",
			describeAll(o.missing), o.since.UTC().Format(time.RFC3339), o.timeout)}
}

// opened returns the report on a namespace whose gate is open, perhaps without required objects.
func (o objects) opened(lifecycle *v1alpha1.NamespaceLifecycle) report {
	report := opened(lifecycle)
	if len(o.missing) > 0 {
		report.reason = v1alpha1.ReasonObjectsMissing
		report.message += fmt.Sprintf("; the namespace was opened without %s; see: kubectl nsinit why %s", describeAll(o.missing), lifecycle.Name)
	}
	return report
}

// recordOpening records the event of an opened gate, and counts required objects that did not exist.
func (c *Controller) recordOpening(namespace *corev1.Namespace, missing []*objectWatch, report report) {
	kind := corev1.EventTypeNormal
	for _, object := range missing {
		kind = corev1.EventTypeWarning
		c.Metrics.without.WithLabelValues(object.String()).Inc()
	}
	c.Events.Event(namespace, kind, report.reason, "The namespace is open: "+report.message)
}

// maxBacklog is how long after a namespace the controllers of Kubernetes may create its objects.
const maxBacklog = 10 * time.Minute

// objectCounts says whether an object appears in a namespace that waited for it, or is new, and not in one where a tenant can replace it.
func (c *Controller) objectCounts(object *metav1.PartialObjectMetadata) bool {
	namespace, err := c.namespaces.Get(object.Namespace)
	return err != nil || helper.IsClosed(namespace) || openedWithout(namespace) || object.CreationTimestamp.Sub(namespace.CreationTimestamp.Time) <= maxBacklog
}

// objectChanged re-queues a namespace that may wait for a required object.
func (c *Controller) objectChanged(name string) {
	if namespace, err := c.namespaces.Get(name); err == nil && (helper.IsClosed(namespace) || openedWithout(namespace)) {
		c.queue.Add(name)
	}
}
