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
	// readTimeout bounds each of these lists, and each read that takes the place of the cache. A
	// watch cache that is behind delays a list by 3 seconds.
	readTimeout = 5 * time.Second
)

// errBehind is the problem of a watch that delivers nothing although it did not end.
var errBehind = errors.New("the watch of NamespaceLifecycles is behind")

// listing knows whether the cache of NamespaceLifecycles can be relied on. A server that cannot list
// them, because it cannot decode one of them, may keep watches open without delivering anything. So
// the controller lists those that are not active while any namespace waits.
type listing struct {
	synced cache.InformerSynced

	mu sync.Mutex
	// problem is why the cache cannot be relied on, nil if it can.
	problem error
	// failed and succeeded say what became of the last list, if there was one.
	failed, succeeded bool
	// previous is what the last list returned.
	previous []v1alpha1.NamespaceLifecycle

	// unlisted is what the cache showed before the last list, and the list should have shown but did
	// not. Only watchListing uses it.
	unlisted []*v1alpha1.NamespaceLifecycle
}

// current returns why the cache cannot be relied on, or nil.
func (l *listing) current() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// settled says whether it is known what to work with: the cache, or live reads.
func (l *listing) settled() bool { return l.synced() || l.current() != nil }

// observe notes the result of a list, and returns the problem, and whether there was none before, or
// is none now. One failure may be a restart of the server; it counts if the next list fails, too.
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

// watchListing lists NamespaceLifecycles while a namespace waits, until the context ends. While they
// cannot be listed, it brings each namespace that waits back to the queue.
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
				logger.Error(problem, "Cannot list NamespaceLifecycles: the controller reads them one by one")
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

// compareList compares the cache with a list. It returns the problem, and whether there was none before,
// or is none now.
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
		c.listing.unlisted = slices.DeleteFunc(cached, func(record *v1alpha1.NamespaceLifecycle) bool { return listed.Has(record.UID) })
	}
	return changed, problem
}

// waiting returns the namespaces that wait for nsinit.
func (c *Controller) waiting() []*corev1.Namespace {
	namespaces, _ := c.namespaces.List(labels.Everything()) // a cache has no error
	return slices.DeleteFunc(namespaces, func(namespace *corev1.Namespace) bool { return !helper.IsClosed(namespace) && !isHeld(namespace) })
}

// cachedOf returns what the cache shows of namespaces that wait, and a list of what is not active shows,
// too. An active record of a namespace that is held was deleted.
func (c *Controller) cachedOf(waiting []*corev1.Namespace) (records []*v1alpha1.NamespaceLifecycle) {
	for _, namespace := range waiting {
		record, err := c.records.Get(namespace.Name)
		if err == nil && (record.Status.Phase != v1alpha1.LifecycleActive || isHeld(namespace)) {
			records = append(records, record)
		}
	}
	return records
}

// isCached says whether the cache still shows a version of a record.
func (c *Controller) isCached(record *v1alpha1.NamespaceLifecycle) bool {
	cached, err := c.records.Get(record.Name)
	return err == nil && cached.UID == record.UID && cached.ResourceVersion == record.ResourceVersion
}

// isHeld says whether all that keeps a deleted namespace is nsinit's finalizer.
func isHeld(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && isSecured(namespace) &&
		!slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
}

func (c *Controller) listNotActive(ctx context.Context) ([]v1alpha1.NamespaceLifecycle, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.lifecycles().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.LifecycleActive)).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// isBehind says whether the cache has not reached what the previous list returned.
func (c *Controller) isBehind(previous, list []v1alpha1.NamespaceLifecycle) bool {
	return slices.ContainsFunc(previous, func(listed v1alpha1.NamespaceLifecycle) bool {
		cached, err := c.records.Get(listed.Name)
		if err != nil || cached.UID != listed.UID {
			return slices.ContainsFunc(list, func(now v1alpha1.NamespaceLifecycle) bool { return now.UID == listed.UID })
		}
		order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, listed.ResourceVersion)
		return err == nil && order < 0
	})
}

// reconcileUnlisted takes the place of reconcile while the cache of NamespaceLifecycles cannot be
// relied on. It reads one by one, so that a NamespaceLifecycle that cannot be decoded holds only its
// own namespace, and names that only a list shows wait. Every namespace that waits says why.
func (c *Controller) reconcileUnlisted(ctx context.Context, name string, exempt bool, problem error) error {
	namespace, err := c.namespaces.Get(name)
	if err == nil && mayWithdrawReady(namespace) && (!exempt || !leftAlone(state{namespace: namespace})) {
		return inStep(withdrawReady, c.take(ctx, withdrawReady, state{namespace: namespace})) // needs no record
	}
	if err != nil || !helper.IsClosed(namespace) && !isHeld(namespace) {
		return nil //nolint:nilerr // the list brings it back
	}
	if !concernsLists(problem) {
		if _, err := c.records.Get(name); err != nil && helper.IsClosed(namespace) {
			// The server refuses the creation of what it has already, and says why it cannot create it.
			if err := c.createRecord(ctx, namespace); !errors.Is(err, errExists) {
				return inStep(createRecord, err)
			}
		}
		return c.reportUnreadable(ctx, namespace, fmt.Errorf("nsinit cannot list NamespaceLifecycles, and tries again: %w", problem))
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, err := c.live(reading, name)
	switch {
	case err != nil:
		return c.reportUnreadable(ctx, namespace, fmt.Errorf("nsinit cannot read NamespaceLifecycle %q, and tries again: %w%s", name, err, nextStep))
	case exempt && leftAlone(s):
		return nil
	}
	c.measureTurn(name, &s)
	if step := next(s); step != nothing {
		return c.take(ctx, step, s)
	}
	said := describe(s)
	if said == nil {
		return nil
	}
	said.message += fmt.Sprintf("; initializers and participants may not be notified: %v%s", problem, nextStep)
	return c.write(ctx, s.namespace, *said)
}

// nextStep ends messages on objects that cannot be decoded.
const nextStep = `; an administrator finds the object and how to delete it with "kubectl nsinit check"`

// concernsLists says whether NamespaceLifecycles can be read one by one although a list fails.
func concernsLists(problem error) bool {
	return apierrors.IsStoreReadError(problem) || apierrors.IsTooManyRequests(problem) || errors.Is(problem, errBehind)
}

// reportUnreadable reports on a namespace that waits while its NamespaceLifecycle cannot be read, and
// returns the reason.
func (c *Controller) reportUnreadable(ctx context.Context, namespace *corev1.Namespace, reason error) error {
	said := report{reason: v1alpha1.ReasonTerminating, message: reason.Error()}
	if helper.IsClosed(namespace) {
		said.initializing, said.reason = corev1.ConditionTrue, v1alpha1.ReasonNoRecord
	}
	return errors.Join(reason, c.write(ctx, namespace, said))
}
