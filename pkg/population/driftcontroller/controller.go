/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package driftcontroller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/generated/informers/externalversions"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	"github.com/nsinit/nsinit/pkg/util/cached"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	// resync is how often every namespace is reconciled without an event.
	resync = 10 * time.Minute
	// recheck is how soon a population that is not ready is checked again: kinds and permissions are not watched.
	recheck = 10 * time.Second
	// settle is how long an update of a population's status waits for more changes.
	settle   = 500 * time.Millisecond
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Minute
	// An object that a change has written is an event, which queues its namespace as a repair. So there are more workers for
	// repairs: what the workers for changes write does not occupy all of them.
	changeWorkers, repairWorkers = 2, 4
)

// Config is what a Controller needs.
type Config struct {
	Core     kubernetes.Interface
	Nsinit   versioned.Interface
	Metadata metadata.Interface
	// Informers follow populations and inventories.
	Informers informers.Interface
	Followed  *Followed
	// Namespaces report changed labels.
	Namespaces *population.Namespaces
	// Populate reconciles a namespace, and Forget deletes the inventory of a namespace that does not exist.
	Populate func(ctx context.Context, namespace *corev1.Namespace, closed bool) error
	Forget   func(context.Context, *v1alpha1.PopulatedNamespace) error
	// Readiness returns the condition Ready of a population.
	Readiness func(context.Context, *v1alpha1.NamespacePopulation) metav1.Condition
	// Retry is called when a population has changed: closed namespaces may wait for the change. Set it before the informers
	// start.
	Retry func()
}

// Controller corrects drift in open namespaces.
type Controller struct {
	Config
	// repairs are the namespaces with changed objects, and changes those that are reconciled for another reason, such as changed
	// labels or a repair that failed. They have separate workers, because changes can be many and slow, and a repair must not wait
	// for them.
	repairs, changes    workers.Queue
	statuses, readiness workers.Queue
	inventories         listers.PopulatedNamespaceLister
	populations         listers.NamespacePopulationLister
	synced              []cache.InformerSynced

	mu sync.Mutex
	// busy are the namespaces that workers reconcile. The value is the queue to which the namespace is added after that, or nil.
	busy map[string]workers.Queue
	// closed are the namespaces that are reconciled when they open.
	closed sets.Set[string]
}

// NewInformers returns informers that also send events without a change, so that every namespace is reconciled at times.
func NewInformers(client versioned.Interface) externalversions.SharedInformerFactory {
	return externalversions.NewSharedInformerFactoryWithOptions(client, resync, externalversions.WithTransform(cached.WithoutManagedFields))
}

// New returns a Controller that is not running yet.
func New(config Config) (*Controller, error) {
	c := &Controller{
		Config:    config,
		repairs:   newQueue("population-repairs", config.Namespaces.Creator),
		changes:   newQueue("populated-namespaces", config.Namespaces.Creator),
		statuses:  newQueue("population-status", nil),
		readiness: newQueue("population-readiness", nil),
		busy:      map[string]workers.Queue{},
		closed:    sets.New[string](),
	}
	inventories, populations := config.Informers.PopulatedNamespaces(), config.Informers.NamespacePopulations()
	c.inventories, c.populations = inventories.Lister(), populations.Lister()
	c.synced = []cache.InformerSynced{inventories.Informer().HasSynced, populations.Informer().HasSynced}
	if _, err := inventories.Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    c.inventoryAdded,
		UpdateFunc: c.inventoryUpdated,
		DeleteFunc: c.inventoryChanged,
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(config.Namespaces.OnLabels(c.changes.Add), config.Namespaces.OnOpen(c.opened)); err != nil {
		return nil, err
	}
	_, err := populations.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.populationChanged,
		UpdateFunc: c.populationUpdated,
		DeleteFunc: c.populationChanged,
	})
	return c, err
}

func newQueue(name string, groupOf func(string) string) workers.Queue {
	return workers.NewFairQueue(name, clock.RealClock{}, minRetry, maxRetry, groupOf)
}

// Run runs until the context ends. The informers must be running.
func (c *Controller) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "drift-controller"))
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer c.Followed.begin(func(resource schema.GroupVersionResource) {
		ctx, end := context.WithCancel(ctx)
		informer := c.watch(ctx, resource, func() {
			c.Followed.forget(resource)
			end()
		})
		group.Go(func() { informer.RunWithContext(ctx) })
		group.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				c.enqueueAll() // what was deleted before is no event
			}
		})
	})() // before Wait: nothing may be added to the group after that
	group.Go(func() { workers.Run(ctx, c.statuses, 1, c.reportStatus) })
	group.Go(func() { workers.Run(ctx, c.readiness, 1, c.checkReadiness) })
	group.Go(func() { workers.Run(ctx, c.changes, changeWorkers, c.exclusively(c.changes)) })
	workers.Run(ctx, c.repairs, repairWorkers, c.exclusively(c.repairs))
}

// exclusively returns the function that handles a key of repairs or changes. If a worker of the other queue reconciles the
// namespace, the function queues the namespace again after that. It does not wait, so that the worker is free for others.
func (c *Controller) exclusively(from workers.Queue) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		c.mu.Lock()
		if _, busy := c.busy[name]; busy {
			defer c.mu.Unlock()
			c.busy[name] = from
			return nil
		}
		c.busy[name] = nil
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if waiting := c.busy[name]; waiting != nil {
				waiting.Add(name)
			}
			delete(c.busy, name)
		}()
		err := c.reconcile(ctx, name)
		if err != nil && from == c.repairs && !population.IsTemporary(err) {
			// It can fail in every namespace, such as without a permission. Others must not wait for it.
			klog.FromContext(ctx).Error(err, "A repair failed, retrying as a change", "name", name)
			c.changes.AddRateLimited(name)
			return nil
		}
		return err
	}
}

// opened queues a namespace in which something changed while it was closed.
func (c *Controller) opened(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Has(name) {
		c.changes.Add(name)
	}
}

// setClosed remembers or forgets that a namespace is to be reconciled when it opens.
func (c *Controller) setClosed(name string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.closed.Insert(name)
	} else {
		c.closed.Delete(name)
	}
}

// reconcile applies the populations to an open namespace. The initializer populates closed ones.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	inventory, err := c.inventories.Get(name)
	if apierrors.IsNotFound(err) { // or the cache does not have it yet
		inventory, err = c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	c.setClosed(name, true) // before the read: it can open after that
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil {
		c.setClosed(name, false)
	}
	if apierrors.IsNotFound(err) || err == nil && namespace.UID != inventory.Spec.NamespaceUID {
		return c.Forget(ctx, inventory)
	}
	if err != nil {
		return err
	}
	if helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil || metav1.HasLabel(namespace.ObjectMeta, v1alpha1.LabelFrozen) {
		return nil // a changed label queues it again when it is unfrozen
	}
	return c.Populate(ctx, namespace, false)
}

// enqueue queues the namespace of an inventory.
func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.changes.Add(key)
	}
}

// inventoryAdded queues the namespace of an inventory that existed at the start: the Populator creates others.
func (c *Controller) inventoryAdded(object any, isInInitialList bool) {
	if isInInitialList {
		c.enqueue(object)
	}
	c.inventoryChanged(object)
}

func (c *Controller) inventoryUpdated(oldObj, newObj any) {
	oldInventory, ok := oldObj.(*v1alpha1.PopulatedNamespace)
	newInventory, stillOK := newObj.(*v1alpha1.PopulatedNamespace)
	if !ok || !stillOK {
		return
	}
	// Only the Populator updates an inventory. A resync does not change the resource version.
	if oldInventory.ResourceVersion == newInventory.ResourceVersion || oldInventory.UID != newInventory.UID {
		c.enqueue(newInventory)
	}
	// What drifts while a rollout brings an object is repaired only after the inventory has the object.
	if !slices.Equal(hashes(oldInventory), hashes(newInventory)) {
		c.repairs.Add(newInventory.Name)
	}
	c.inventoryChanged(oldInventory)
	c.inventoryChanged(newInventory)
}

// hashes returns the hashes of the objects as they were applied.
func hashes(inventory *v1alpha1.PopulatedNamespace) (all []string) {
	for _, entry := range inventory.Status.Objects {
		all = append(all, entry.ContentHash)
	}
	return all
}

// inventoryChanged queues the populations of an inventory.
func (c *Controller) inventoryChanged(object any) {
	inventory, ok := cached.Object[*v1alpha1.PopulatedNamespace](object)
	if !ok {
		return
	}
	for _, entry := range inventory.Status.Objects {
		c.statuses.AddAfter(entry.Population, settle)
	}
}

func (c *Controller) populationUpdated(oldObj, newObj any) {
	oldPopulation, ok := oldObj.(*v1alpha1.NamespacePopulation)
	newPopulation, stillOK := newObj.(*v1alpha1.NamespacePopulation)
	if ok && stillOK && (oldPopulation.Generation != newPopulation.Generation || oldPopulation.UID != newPopulation.UID) {
		c.populationChanged(newPopulation)
	}
}

// populationChanged queues a population and every namespace.
func (c *Controller) populationChanged(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.statuses.AddAfter(key, settle)
		c.readiness.Add(key)
	}
	c.Retry()
	c.enqueueAll()
}

// enqueueAll queues every namespace.
func (c *Controller) enqueueAll() {
	inventories, err := c.inventories.List(labels.Everything())
	if err != nil {
		return // a lister returns no error
	}
	for _, inventory := range inventories {
		c.changes.Add(inventory.Name)
	}
}
