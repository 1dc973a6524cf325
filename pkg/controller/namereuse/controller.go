/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

const (
	// Name is the name of the controller in logs and metrics.
	Name = "name-reuse"
	// settleDelay combines the events of many namespaces into one write. kube-controller-manager deletes the
	// content of a namespace 5 s after the deletion. The name must be in the list by then.
	settleDelay = 100 * time.Millisecond
	// maxRetryDelay bounds the delay after a failed write for the same reason.
	maxRetryDelay = time.Second
)

// listKey is the key of the list in the queue. Other keys are names of namespaces, which have no underscore.
const listKey = "_list"

// Controller maintains the list, and the finalizer of terminating namespaces.
type Controller struct {
	core  kubernetes.Interface
	clock clock.WithTicker
	// namespace is that of the list.
	namespace string

	// namespaces is a separate informer, with the transformation of the others: the controller also runs in instances that do not lead,
	// which have no other one, and begins only when the component is installed.
	list, namespaces cache.SharedIndexInformer
	// installed is closed when the ConfigMap exists. Before, namespaces are not watched.
	installed chan struct{}
	queue     workers.Queue

	mu          sync.Mutex
	terminating map[string]deletion
	// removed are the removed names that are not in the list yet.
	removed sets.Set[string]
}

// New returns a controller that is not running yet. namespace is that of nsinit, in which the list is.
func New(core kubernetes.Interface, namespace string, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		core: core, clock: clock, namespace: namespace,
		list: coreinformers.NewFilteredConfigMapInformer(core, namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", installation.RemovedNamespaces).String()
		}),
		namespaces:  coreinformers.NewNamespaceInformer(core, 0, cache.Indexers{}),
		queue:       workers.NewQueue(Name, clock, 20*time.Millisecond, maxRetryDelay),
		terminating: map[string]deletion{},
		removed:     sets.New[string](),
		installed:   make(chan struct{}),
	}
	if err := c.namespaces.SetTransform(cached.ControlledNamespaces); err != nil {
		return nil, err
	}
	installed := sync.OnceFunc(func() { close(c.installed) })
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		c.namespaces: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { c.namespaceChanged(nil, object) },
			UpdateFunc: c.namespaceChanged,
			DeleteFunc: c.namespaceRemoved,
		},
		c.list: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { installed(); c.enqueueAll() },
			UpdateFunc: c.listChanged,
			DeleteFunc: func(any) { c.enqueueAll() },
		},
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("cannot watch: %w", err)
		}
	}
	return c, nil
}

// enqueueAll adds the list and each terminating namespace to the queue.
func (c *Controller) enqueueAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.Add(listKey)
	for name := range c.terminating {
		c.queue.Add(name)
	}
}

// listChanged adds the list and the names that changed in it to the queue.
func (c *Controller) listChanged(oldObj, newObj any) {
	c.queue.Add(listKey)
	oldList, _ := oldObj.(*corev1.ConfigMap)
	newList, ok := newObj.(*corev1.ConfigMap)
	if !ok || oldList == nil {
		return
	}
	for name, value := range newList.Data {
		if oldList.Data[name] != value {
			c.queue.Add(name)
		}
	}
}

// namespaceChanged adds a terminating namespace to the queue. It also detects that another namespace
// replaced one of its name, because an interrupted watch does not show the removal.
func (c *Controller) namespaceChanged(oldObj, newObj any) {
	namespace, ok := newObj.(*corev1.Namespace)
	if !ok {
		return
	}
	oldNamespace, _ := oldObj.(*corev1.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	replaced := oldNamespace != nil && oldNamespace.UID != namespace.UID
	if replaced {
		c.removed.Insert(namespace.Name)
	}
	before := c.terminating[namespace.Name]
	if namespace.DeletionTimestamp != nil {
		c.terminating[namespace.Name] = deletionOf(namespace)
		c.queue.Add(namespace.Name)
	} else {
		delete(c.terminating, namespace.Name)
	}
	if replaced || before != c.terminating[namespace.Name] {
		c.queue.AddAfter(listKey, settleDelay)
	}
}

func (c *Controller) namespaceRemoved(object any) {
	namespace, ok := cached.Object[*corev1.Namespace](object)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.terminating, namespace.Name)
	c.removed.Insert(namespace.Name)
	c.queue.AddAfter(listKey, settleDelay)
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	defer c.queue.ShutDown()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.list.RunWithContext(ctx) })
	select {
	case <-c.installed:
	case <-ctx.Done():
		return nil
	}
	group.Go(func() { c.namespaces.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.namespaces.HasSynced) {
		return nil
	}
	klog.FromContext(ctx).Info("Maintaining the list of removed namespaces", "configMap", klog.KRef(c.namespace, installation.RemovedNamespaces))
	workers.Run(ctx, c.queue, 2, func(ctx context.Context, key string) error {
		if key == listKey {
			return c.reconcileList(ctx)
		}
		return c.reconcileNamespace(ctx, key)
	})
	return nil
}

// current returns the ConfigMap, or nil if the component is not installed.
func (c *Controller) current() (*corev1.ConfigMap, error) {
	object, _, err := c.list.GetStore().GetByKey(c.namespace + "/" + installation.RemovedNamespaces)
	configMap, _ := object.(*corev1.ConfigMap)
	return configMap, err
}

// reconcileList updates the list. It returns a conflict if the list changed since it was read.
func (c *Controller) reconcileList(ctx context.Context) error {
	configMap, err := c.current()
	if err != nil {
		return err
	}
	if configMap == nil {
		c.forget(c.observe(time.Time{}).removed)
		return nil
	}
	if _, err := periodOf(configMap.Data); err != nil {
		klog.FromContext(ctx).Error(err, "The period of the list is invalid", "configMap", klog.KObj(configMap))
	}
	seen := c.observe(configMap.CreationTimestamp.Time)
	want, again := next(configMap.Data, seen)
	if !maps.Equal(want, configMap.Data) {
		updated := configMap.DeepCopy()
		updated.Data = want
		if _, err := c.core.CoreV1().ConfigMaps(updated.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return utilapierrors.IgnoreAbsent(err)
		}
	}
	c.forget(seen.removed)
	if !again.IsZero() {
		c.queue.AddAfter(listKey, again.Sub(c.clock.Now()))
	}
	return nil
}

// reconcileNamespace updates spec.finalizers of a terminating namespace.
func (c *Controller) reconcileNamespace(ctx context.Context, name string) error {
	configMap, err := c.current()
	if err != nil {
		return err
	}
	object, found, err := c.namespaces.GetStore().GetByKey(name)
	namespace, ok := object.(*corev1.Namespace)
	if err != nil || !found || !ok {
		return err
	}
	var period time.Duration
	var listed time.Time
	if configMap != nil {
		period, _ = periodOf(configMap.Data)
		listed = listedSince(configMap.Data[name])
	}
	want, again := nextFinalizers(namespace, listed, period, c.clock.Now())
	if !slices.Equal(want, namespace.Spec.Finalizers) {
		updated, err := c.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}) // the cache has only a part of it
		if err != nil {
			return utilapierrors.IgnoreAbsent(err)
		}
		updated.Spec.Finalizers, _ = nextFinalizers(updated, listed, period, c.clock.Now())
		_, err = c.core.CoreV1().Namespaces().Finalize(ctx, updated, metav1.UpdateOptions{})
		return utilapierrors.IgnoreAbsent(err)
	}
	if !again.IsZero() {
		c.queue.AddAfter(name, again.Sub(c.clock.Now()))
	}
	return nil
}

// observe returns a copy of the names.
func (c *Controller) observe(created time.Time) observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return observation{created: created, terminating: maps.Clone(c.terminating), removed: c.removed.Clone(), now: c.clock.Now()}
}

// forget removes names that are in the list.
func (c *Controller) forget(names sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = c.removed.Difference(names)
}
