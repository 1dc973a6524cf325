/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/util/absent"
	"github.com/nsinit/nsinit/pkg/util/tombstone"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	// Name is the name of the controller in logs and metrics.
	Name = "name-reuse"
	// settleDelay gathers the events of many namespaces into one write. kube-controller-manager waits 5 s
	// before it empties a deleted namespace, and the name must be in the list by then.
	settleDelay = 100 * time.Millisecond
	// maxRetryDelay bounds the delay after a failed write, for the same reason.
	maxRetryDelay = time.Second
)

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Namespaces coreinformers.NamespaceInformer
	Clock      clock.WithTicker
}

// Controller keeps the list.
type Controller struct {
	Dependencies

	list   cache.SharedIndexInformer
	synced []cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[string]

	mu          sync.Mutex
	terminating sets.Set[string]
	// removed are the names that were removed and are not in a list that was written.
	removed sets.Set[string]
}

// New returns a controller that is not running yet.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies: d,
		list: coreinformers.NewFilteredConfigMapInformer(d.Core, installation.Namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", installation.RemovedNamespaces).String()
		}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: Name, Clock: d.Clock}),
		terminating: sets.New[string](),
		removed:     sets.New[string](),
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		d.Namespaces.Informer(): cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { c.namespaceChanged(nil, object) },
			UpdateFunc: c.namespaceChanged,
			DeleteFunc: c.namespaceRemoved,
		},
		c.list: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { c.queue.Add(installation.RemovedNamespaces) },
			UpdateFunc: func(any, any) { c.queue.Add(installation.RemovedNamespaces) },
		},
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("cannot watch: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// namespaceChanged notes a namespace that is being deleted, and one that replaced another of its name: a
// watch that was interrupted does not show the removal.
func (c *Controller) namespaceChanged(was, is any) {
	namespace, ok := is.(*corev1.Namespace)
	if !ok {
		return
	}
	before, _ := was.(*corev1.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	replaced := before != nil && before.UID != namespace.UID
	if replaced {
		c.removed.Insert(namespace.Name)
	}
	known, deleted := c.terminating.Has(namespace.Name), namespace.DeletionTimestamp != nil
	if deleted {
		c.terminating.Insert(namespace.Name)
	} else {
		c.terminating.Delete(namespace.Name)
	}
	if replaced || known != deleted {
		c.queue.AddAfter(installation.RemovedNamespaces, settleDelay)
	}
}

func (c *Controller) namespaceRemoved(object any) {
	namespace, ok := tombstone.Object[*corev1.Namespace](object)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terminating.Delete(namespace.Name)
	c.removed.Insert(namespace.Name)
	c.queue.AddAfter(installation.RemovedNamespaces, settleDelay)
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	defer c.queue.ShutDown()
	var group sync.WaitGroup
	group.Go(func() { c.list.RunWithContext(ctx) })
	defer group.Wait()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return errors.New("stopped before the caches were filled")
	}
	workers.Run(ctx, c.queue, 1, c.reconcile)
	return nil
}

// reconcile writes the list if it has to change. A list that changed since it was read is a conflict, and
// read again.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	object, found, err := c.list.GetStore().GetByKey(installation.Namespace + "/" + name)
	if err != nil {
		return err
	}
	configMap, ok := object.(*corev1.ConfigMap)
	if !found || !ok {
		c.forget(c.observe(time.Time{}).removed) // the component is not installed
		return nil
	}
	if _, err := periodOf(configMap.Data); err != nil {
		klog.FromContext(ctx).Error(err, "The period of the list cannot be used", "configMap", klog.KObj(configMap))
	}
	seen := c.observe(configMap.CreationTimestamp.Time)
	want, again := next(configMap.Data, seen)
	if !maps.Equal(want, configMap.Data) {
		updated := configMap.DeepCopy()
		updated.Data = want
		if _, err := c.Core.CoreV1().ConfigMaps(updated.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return absent.Ignore(err)
		}
	}
	c.forget(seen.removed)
	if !again.IsZero() {
		c.queue.AddAfter(name, again.Sub(c.Clock.Now()))
	}
	return nil
}

// observe returns what was seen so far.
func (c *Controller) observe(created time.Time) observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return observation{created: created, terminating: c.terminating.Clone(), removed: c.removed.Clone(), now: c.Clock.Now()}
}

// forget drops names that are in the list now.
func (c *Controller) forget(names sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = c.removed.Difference(names)
}
