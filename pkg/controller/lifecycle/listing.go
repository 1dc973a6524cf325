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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

const (
	// listKey is the key of checkList in the queue. No namespace has an underscore in its name.
	listKey = "_list"
	// listInterval is the time between two lists after one that failed.
	listInterval = 3 * time.Second
	// readTimeout bounds each of these lists, and each live read of a lifecycle. A watch cache that is behind delays a list by 3 seconds.
	readTimeout = 5 * time.Second
	// onePage is a limit above every number of lifecycles. While the watch cache of the server cannot be filled, etcd answers a list with a
	// limit, and the error names the objects that cannot be decoded.
	onePage = 1_000_000_000
)

// errSilent is the problem of a watch that is open and delivers no events, although lists succeed.
var errSilent = errors.New("the watch of NamespaceLifecycles delivers no events")

// listing records whether lifecycles can be listed. A server that cannot decode one of them lists and watches none, but reads the
// others. For half a minute, watches that are open deliver no events. Then new ones are refused.
type listing struct {
	mu sync.Mutex
	// doubt says that a request of the informer failed, or the last list.
	doubt bool
	// failed says that the last list failed.
	failed bool
	// newest is the version of the last created lifecycle, and expected one that the cache should have at the next check, or "". seen is
	// the version of the cache when the check was planned.
	newest, expected, seen string
	// problem is why lifecycles cannot be listed, or nil.
	problem error
	// stuck is the version of the cache when the problem began.
	stuck string
}

// current returns why lifecycles cannot be listed, or nil.
func (l *listing) current() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// suspect causes a list if a request of the informer failed, unless one is planned. It returns the error.
func (c *Controller) suspect(err error) error {
	if err != nil {
		c.turns.interrupt(c.Clock.Now())
		c.listing.mu.Lock()
		defer c.listing.mu.Unlock()
		if !c.listing.doubt {
			c.listing.doubt = true
			c.queue.Add(listKey)
		}
	}
	return err
}

// expect causes a list if the cache does not have a version of a lifecycle soon, and does not change.
func (c *Controller) expect(version string) {
	c.listing.mu.Lock()
	defer c.listing.mu.Unlock()
	c.listing.newest = version
	if c.listing.expected == "" {
		c.planCheck(c.Lifecycles.Informer().LastSyncResourceVersion())
	}
}

// planCheck has it checked later whether the cache has the newest version. The caller holds the lock.
func (c *Controller) planCheck(cached string) {
	c.listing.expected, c.listing.seen = c.listing.newest, cached
	c.queue.AddAfter(listKey, cacheDelay)
}

// isDue says whether to list, for a version of the cache, and whether the cache lacks a lifecycle and is stuck. One that only lags changes.
func (c *Controller) isDue(cached string) (due, stuck bool) {
	c.listing.mu.Lock()
	defer c.listing.mu.Unlock()
	stuck = isOlder(cached, c.listing.expected) && cached == c.listing.seen
	c.listing.expected = ""
	if !stuck && isOlder(cached, c.listing.newest) {
		c.planCheck(cached)
	}
	return stuck || c.listing.doubt, stuck
}

func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// observe stores the result of a list, and returns the problem and whether one began or ended. One failure may be a restart of the
// server, so it counts only if the next list fails too. An object that cannot be decoded is a problem until the cache changes, because
// watches continue later than lists. So is a cache that is silent: it is stuck although the list succeeded.
func (l *listing) observe(err error, cached string, filled, silent bool) (problem error, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.problem
	switch {
	case err != nil && (l.failed || before != nil || apierrors.IsStoreReadError(err)):
		l.problem = err
		if before == nil || apierrors.IsStoreReadError(err) && !apierrors.IsStoreReadError(before) {
			l.stuck = cached
		}
	case err == nil && silent:
		l.problem, l.stuck = errSilent, cached
	case err == nil && filled && (cached != l.stuck || !apierrors.IsStoreReadError(before) && !errors.Is(before, errSilent)):
		l.problem = nil
	}
	l.failed = err != nil
	l.doubt = l.failed || l.problem != nil
	return l.problem, (before == nil) != (l.problem == nil)
}

// checkList lists lifecycles if the cache may be unreliable, and again until it is reliable. Meanwhile, it re-queues each namespace that waits.
func (c *Controller) checkList(ctx context.Context) {
	cached, filled := c.Lifecycles.Informer().LastSyncResourceVersion(), c.filled()
	due, stuck := c.isDue(cached)
	if !due && filled {
		return
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := c.client.List(reading, metav1.ListOptions{Limit: onePage})
	silent := stuck && c.Lifecycles.Informer().LastSyncResourceVersion() == cached
	problem, changed := c.listing.observe(err, cached, filled, silent)
	switch {
	case changed && problem == nil:
		klog.FromContext(ctx).Info("NamespaceLifecycles can be listed again")
		c.enqueueAll()
	case changed:
		klog.FromContext(ctx).Error(problem, "Cannot list NamespaceLifecycles; the controller reads each of them")
	}
	if err != nil || problem != nil {
		c.turns.interrupt(c.Clock.Now())
		c.queue.AddAfter(listKey, listInterval)
	}
	if problem == nil {
		return
	}
	namespaces, _ := c.namespaces.List(labels.Everything()) // a cache has no error
	for _, namespace := range namespaces {
		if isWaiting(namespace) {
			c.queue.Add(namespace.Name)
		}
	}
}

// settle waits until the cache is filled, or cannot be. An informer that cannot list retries indefinitely.
func (c *Controller) settle(ctx context.Context) error {
	for c.listing.current() == nil {
		attempt, cancel := context.WithTimeout(ctx, listInterval)
		filled := cache.WaitForCacheSync(attempt.Done(), c.filled)
		cancel()
		if filled || ctx.Err() != nil {
			return ctx.Err()
		}
		c.checkList(ctx)
	}
	return nil
}

// newInformer returns an informer of lifecycles. It reports each request that fails: the informer's handler of errors does not get
// those after which it only watches again, such as 429.
func (c *Controller) newInformer(client versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
	lifecycles := client.NsinitV1alpha1().NamespaceLifecycles()
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := lifecycles.List(ctx, options)
			return list, c.suspect(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := lifecycles.Watch(ctx, options)
			return events, c.suspect(err)
		},
	}, client), &v1alpha1.NamespaceLifecycle{}, resync, cache.Indexers{})
}

// isWaiting says whether a namespace waits for nsinit, or will.
func isWaiting(namespace *corev1.Namespace) bool {
	return namespace != nil && (helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil)
}

// isBlocked says whether only nsinit keeps a namespace closed, or from being removed.
func isBlocked(namespace *corev1.Namespace) bool {
	return helper.IsClosed(namespace) ||
		namespace.DeletionTimestamp != nil && isSecured(namespace) && !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// reportUnreadable reports that the lifecycle of a namespace cannot be read, and returns the reason.
func (c *Controller) reportUnreadable(ctx context.Context, s state, reason error) error {
	reason = fmt.Errorf("nsinit cannot read NamespaceLifecycle %q, and retries: %w%s", s.namespace.Name, explain(reason), remedy(s.unlisted))
	if !isBlocked(s.namespace) {
		return reason
	}
	unreadable := report{reason: v1alpha1.ReasonTerminating, message: reason.Error()}
	if helper.IsClosed(s.namespace) {
		unreadable.initializing, unreadable.reason = corev1.ConditionTrue, v1alpha1.ReasonNoLifecycle
	}
	return errors.Join(reason, c.write(ctx, s.namespace, unreadable))
}

// explain returns the cause of an error if the API of nsinit is not registered, and other errors as they are.
func explain(err error) error {
	if apierrors.IsNotFound(err) && !utilapierrors.IsAbsent(err) {
		return errors.New("nsinit-apiserver is not ready, so its API is not registered")
	}
	return err
}

// remedy is the last part of messages on objects that cannot be decoded.
func remedy(problem error) string {
	if !apierrors.IsStoreReadError(problem) {
		return ""
	}
	return `; an administrator runs "kubectl nsinit check" to find the object and how to delete it`
}
