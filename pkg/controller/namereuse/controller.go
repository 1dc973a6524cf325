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
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
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
	namespaces coreinformers.NamespaceIndexInformer
	list       coreinformers.ConfigMapIndexInformer
	// installed is closed when the ConfigMap exists. Before, namespaces are not watched.
	installed chan struct{}
	queue     workers.Queue

	mu sync.Mutex
	// removed are the removed names that are not in the list yet.
	removed sets.Set[string]
}

// New returns a controller that is not running yet. namespace is that of nsinit, in which the list is.
func New(core kubernetes.Interface, namespace string, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		core: core, clock: clock, namespace: namespace,
		list: coreinformers.NewTypedFilteredConfigMapInformer(core, namespace, 0, nil, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", installation.RemovedNamespaces).String()
		}),
		namespaces: coreinformers.NewTypedNamespaceInformer(core, 0, nil),
		queue:      workers.NewQueue(Name, clock, 20*time.Millisecond, maxRetryDelay),
		removed:    sets.New[string](),
		installed:  make(chan struct{}),
	}
	if err := c.namespaces.SetTransform(cached.ControlledNamespaces); err != nil {
		return nil, err
	}
	installed := sync.OnceFunc(func() { close(c.installed) })
	_, namespacesErr := c.namespaces.AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(namespace *corev1.Namespace) { c.namespaceChanged(namespace, namespace) },
		UpdateFunc: c.namespaceChanged,
		DeleteFunc: func(namespace coreinformers.DeletedNamespace) { c.namespaceRemoved(namespace.GetName()) },
	})
	_, listErr := c.list.AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(*corev1.ConfigMap) { installed(); c.enqueueAll() },
		UpdateFunc: c.listChanged,
		DeleteFunc: func(coreinformers.DeletedConfigMap) { c.enqueueAll() },
	})
	if err := errors.Join(namespacesErr, listErr); err != nil {
		return nil, fmt.Errorf("cannot watch: %w", err)
	}
	return c, nil
}

// enqueueAll adds the list and each terminating namespace to the queue.
func (c *Controller) enqueueAll() {
	c.queue.Add(listKey)
	for _, namespace := range c.terminating() {
		c.queue.Add(namespace.Name)
	}
}

// listChanged adds the list and the names that changed in it to the queue.
func (c *Controller) listChanged(oldList, newList *corev1.ConfigMap) {
	c.queue.Add(listKey)
	for name, value := range newList.Data {
		if oldList.Data[name] != value {
			c.queue.Add(name)
		}
	}
}

// namespaceChanged adds a terminating namespace to the queue. It also detects that another namespace
// replaced one of its name, because an interrupted watch does not show the removal.
func (c *Controller) namespaceChanged(oldNamespace, newNamespace *corev1.Namespace) {
	if oldNamespace.UID != newNamespace.UID {
		c.namespaceRemoved(newNamespace.Name)
	}
	if newNamespace.DeletionTimestamp != nil {
		c.queue.Add(newNamespace.Name)
		c.queue.AddAfter(listKey, settleDelay)
	}
}

func (c *Controller) namespaceRemoved(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed.Insert(name)
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
func (c *Controller) current() *corev1.ConfigMap {
	object, _, _ := c.list.GetStore().GetByKey(c.namespace + "/" + installation.RemovedNamespaces) // a store has no error
	configMap, _ := object.(*corev1.ConfigMap)
	return configMap
}

// terminating returns the namespaces that are being deleted.
func (c *Controller) terminating() []*corev1.Namespace {
	all, _ := corelisters.NewNamespaceLister(c.namespaces.GetIndexer()).List(labels.Everything()) // a cache has no error
	return slices.DeleteFunc(all, func(namespace *corev1.Namespace) bool { return namespace.DeletionTimestamp == nil })
}

// reconcileList updates the list. It returns a conflict if the list changed since it was read.
func (c *Controller) reconcileList(ctx context.Context) error {
	configMap := c.current()
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
	namespace, err := corelisters.NewNamespaceLister(c.namespaces.GetIndexer()).Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	var period time.Duration
	var listed time.Time
	if configMap := c.current(); configMap != nil {
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

// observe returns what the next content of the list depends on.
func (c *Controller) observe(created time.Time) observation {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := observation{created: created, terminating: map[string]deletion{}, removed: c.removed.Clone(), now: c.clock.Now()}
	for _, namespace := range c.terminating() {
		o.terminating[namespace.Name] = deletionOf(namespace)
	}
	return o
}

// forget removes names that are in the list.
func (c *Controller) forget(names sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = c.removed.Difference(names)
}
