/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

const (
	// listInterval is how often NamespaceLifecycles are listed while a namespace waits.
	listInterval = 2 * time.Second
	// readTimeout bounds each of these lists, and each read that replaces the cache. A watch cache
	// that is behind delays a list by 3 seconds.
	readTimeout = 5 * time.Second
)

// errBehind means that the watch is open, but delivers no events.
var errBehind = errors.New("the watch of NamespaceLifecycles is behind")

// listing records whether the cache of NamespaceLifecycles is reliable. A server that cannot decode
// one of them cannot list them, and may keep watches open that deliver no events. So the controller
// lists those that are not active while a namespace waits.
type listing struct {
	synced cache.InformerSynced

	mu sync.Mutex
	// problem is why the cache is unreliable, or nil.
	problem error
	// failed and succeeded are the result of the last list, if there was one.
	failed, succeeded bool
	// previous is what the last list returned.
	previous []v1alpha1.NamespaceLifecycle

	// unlisted are the lifecycles that were in the cache before the last list, but not in the list.
	// Only watchListing uses it.
	unlisted []*v1alpha1.NamespaceLifecycle
}

// current returns why the cache is unreliable, or nil.
func (l *listing) current() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// settled says whether the controller can start, with the cache or with live reads.
func (l *listing) settled() bool { return l.synced() || l.current() != nil }

// observe stores the result of a list. It returns the problem, and whether a problem began or ended.
// One failure may be a restart of the server, so it counts only if the next list fails too.
func (l *listing) observe(list []v1alpha1.NamespaceLifecycle, err error, behind func(previous, list []v1alpha1.NamespaceLifecycle) bool) (problem error, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.problem
	switch {
	case err != nil:
		if l.failed || l.problem != nil || apierrors.IsStoreReadError(err) {
			l.problem = err
		}
	case behind(l.previous, list), l.succeeded && !l.synced():
		l.problem = errBehind
	case l.synced():
		l.problem = nil
	}
	l.failed, l.succeeded, l.previous = err != nil, err == nil, list
	return l.problem, (before == nil) != (l.problem == nil)
}

// watchListing lists NamespaceLifecycles while a namespace waits, until the context ends. While the
// cache is unreliable, it re-queues each namespace that waits.
func (c *Controller) watchListing(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := c.Clock.NewTicker(listInterval)
	defer ticker.Stop()
	for {
		if waiting := c.waiting(); len(waiting) > 0 || c.listing.current() != nil {
			changed, problem := c.compareList(ctx, waiting)
			switch {
			case changed && problem == nil:
				logger.Info("NamespaceLifecycles can be listed again")
				c.enqueueAll()
			case changed:
				logger.Error(problem, "Cannot list NamespaceLifecycles; the controller reads each of them")
			}
			if problem != nil {
				for _, namespace := range waiting {
					c.queue.Add(namespace.Name)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// compareList compares the cache with a list. It returns the problem, and whether a problem began or
// ended.
func (c *Controller) compareList(ctx context.Context, waiting []*corev1.Namespace) (changed bool, problem error) {
	cached := c.cachedOf(waiting)
	list, err := c.listNotActive(ctx)
	problem, changed = c.listing.observe(list, err, func(previous, list []v1alpha1.NamespaceLifecycle) bool {
		return c.isBehind(previous, list) || slices.ContainsFunc(c.listing.unlisted, c.isCached)
	})
	c.listing.unlisted = nil
	if err == nil {
		listed := sets.New[types.UID]()
		for i := range list {
			listed.Insert(list[i].UID)
		}
		c.listing.unlisted = slices.DeleteFunc(cached, func(lifecycle *v1alpha1.NamespaceLifecycle) bool { return listed.Has(lifecycle.UID) })
	}
	return changed, problem
}

// waiting returns the namespaces that wait for nsinit.
func (c *Controller) waiting() []*corev1.Namespace {
	namespaces, _ := c.namespaces.List(labels.Everything()) // a cache has no error
	return slices.DeleteFunc(namespaces, func(namespace *corev1.Namespace) bool { return !helper.IsClosed(namespace) && !isHeld(namespace) })
}

// cachedOf returns the cached lifecycles of namespaces that wait which a list of those that are not
// active should include. The lifecycle of a held namespace was deleted, so it cannot be active.
func (c *Controller) cachedOf(waiting []*corev1.Namespace) (lifecycles []*v1alpha1.NamespaceLifecycle) {
	for _, namespace := range waiting {
		lifecycle, err := c.lifecycles.Get(namespace.Name)
		if err == nil && (lifecycle.Status.Phase != v1alpha1.LifecycleActive || isHeld(namespace)) {
			lifecycles = append(lifecycles, lifecycle)
		}
	}
	return lifecycles
}

// isCached says whether the cache still has a version of a lifecycle.
func (c *Controller) isCached(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	cached, err := c.lifecycles.Get(lifecycle.Name)
	return err == nil && cached.UID == lifecycle.UID && cached.ResourceVersion == lifecycle.ResourceVersion
}

// isHeld says whether only nsinit's finalizer holds a namespace that is being deleted.
func isHeld(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && isSecured(namespace) &&
		!slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
}

func (c *Controller) listNotActive(ctx context.Context) ([]v1alpha1.NamespaceLifecycle, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.client.List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.LifecycleActive)).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// isBehind says whether the cache is older than the previous list.
func (c *Controller) isBehind(previous, list []v1alpha1.NamespaceLifecycle) bool {
	return slices.ContainsFunc(previous, func(listed v1alpha1.NamespaceLifecycle) bool {
		cached, err := c.lifecycles.Get(listed.Name)
		if err != nil || cached.UID != listed.UID {
			return slices.ContainsFunc(list, func(now v1alpha1.NamespaceLifecycle) bool { return now.UID == listed.UID })
		}
		order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, listed.ResourceVersion)
		return err == nil && order < 0
	})
}

// reconcileUnlisted replaces reconcile while the cache of NamespaceLifecycles is unreliable. It reads
// each lifecycle live, so that one that cannot be decoded blocks only its own namespace. It reports the
// problem on every namespace that waits.
func (c *Controller) reconcileUnlisted(ctx context.Context, name string, exempt bool, problem error) error {
	namespace, err := c.namespaces.Get(name)
	if err == nil && mayWithdrawReady(namespace) && (!exempt || !leftAlone(state{namespace: namespace})) {
		return inStep(withdrawReady, c.take(ctx, withdrawReady, state{namespace: namespace})) // needs no lifecycle
	}
	if err != nil || !helper.IsClosed(namespace) && !isHeld(namespace) {
		return nil //nolint:nilerr // watchListing re-queues it
	}
	if !concernsLists(problem) {
		if _, err := c.lifecycles.Get(name); err != nil && helper.IsClosed(namespace) {
			// The server refuses to create a lifecycle that exists.
			if err := c.createLifecycle(ctx, namespace); !errors.Is(err, errExists) {
				return inStep(createLifecycle, err)
			}
		}
		return c.reportUnreadable(ctx, namespace, fmt.Errorf("nsinit cannot list NamespaceLifecycles, and retries: %w", problem))
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := c.live(reading, name)
	switch {
	case err != nil:
		return c.reportUnreadable(ctx, namespace, fmt.Errorf("nsinit cannot read NamespaceLifecycle %q, and retries: %w%s", name, err, nextStep))
	case exempt && leftAlone(s):
		return nil
	}
	c.measureTurns(name, &s)
	c.measureObjects(ctx, name, &s)
	if step := next(s); step != nothing {
		return inStep(step, c.take(ctx, step, s))
	}
	report := describe(s)
	if report == nil {
		return nil
	}
	report.message += fmt.Sprintf("; initializers and participants may not be notified: %v%s", problem, nextStep)
	return c.write(ctx, s.namespace, *report)
}

// nextStep is the last part of messages on objects that cannot be decoded.
const nextStep = `; an administrator runs "kubectl nsinit check" to find the object and how to delete it`

// concernsLists says whether single NamespaceLifecycles can be read although a list fails.
func concernsLists(problem error) bool {
	return apierrors.IsStoreReadError(problem) || apierrors.IsTooManyRequests(problem) || errors.Is(problem, errBehind)
}

// reportUnreadable reports that the NamespaceLifecycle of a waiting namespace cannot be read, and
// returns the reason.
func (c *Controller) reportUnreadable(ctx context.Context, namespace *corev1.Namespace, reason error) error {
	unreadable := report{reason: v1alpha1.ReasonTerminating, message: reason.Error()}
	if helper.IsClosed(namespace) {
		unreadable.initializing, unreadable.reason = corev1.ConditionTrue, v1alpha1.ReasonNoLifecycle
	}
	return errors.Join(reason, c.write(ctx, namespace, unreadable))
}
