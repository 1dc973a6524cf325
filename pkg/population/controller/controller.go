/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	typedinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

const (
	// resync is how often every namespace is reconciled without an event, and resyncPause is the least time between two of them: many
	// namespaces must not keep kube-apiserver busy.
	resync      = 10 * time.Minute
	resyncPause = time.Second
	// recheckReady is how soon a population that is not ready is checked again: kinds and permissions are not watched.
	recheckReady = 10 * time.Second
	// settle is how long updates of a population's status and rollouts wait for more changes.
	settle   = 500 * time.Millisecond
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Minute
	// changeWorkers and repairWorkers are how many namespaces are reconciled at the same time.
	changeWorkers, repairWorkers = 2, 4
)

// Populator changes namespaces. A population.Populator implements it.
type Populator interface {
	Populate(ctx context.Context, namespace *corev1.Namespace, mode population.Mode) error
	Forget(ctx context.Context, inventory *v1alpha1.PopulatedNamespace) error
	RollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error)
	ReportRollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population, inventory []v1alpha1.PopulatedObject) ([]population.Result, error)
	Compile(p *v1alpha1.NamespacePopulation) (*population.Population, error)
	Readiness(ctx context.Context, p *v1alpha1.NamespacePopulation) metav1.Condition
}

// Exemptions say which namespaces are exempt by their names.
type Exemptions interface {
	// Has returns whether a namespace is exempt, and whether that is known.
	Has(name, generateName string) (exempt, known bool)
	OnChange(changed func())
	HasSynced() bool
}

// Config is what a Controller needs.
type Config struct {
	Core       kubernetes.Interface
	Nsinit     versioned.Interface
	Metadata   metadata.Interface
	Mapper     meta.RESTMapper
	Populator  Populator
	Exemptions Exemptions
	Events     record.EventRecorder
	Clock      clock.Clock
	// Retry is called when a population has changed: closed namespaces may wait for the change. Set it before Run.
	Retry func()
}

// Controller applies populations to open namespaces.
type Controller struct {
	Config
	// repairs are the namespaces with changed objects, and changes those that are reconciled for another reason, such as changed
	// labels or a repair that failed. They have separate workers, because changes can be many and slow, and a repair must not wait
	// for them.
	repairs, changes workers.Queue
	// statuses, readiness and rollouts are names of populations. Only the worker of statuses writes their statuses.
	statuses, readiness, rollouts workers.Queue

	informers   externalversions.SharedInformerFactory
	namespaces  cache.TypedSharedIndexInformer[*metav1.PartialObjectMetadata]
	inventories listers.PopulatedNamespaceLister
	populations listers.NamespacePopulationLister
	synced      []cache.InformerSynced
	// running are the workers and informers.
	running sync.WaitGroup
	// known are the rollouts of the populations with scope All, by name. Only the worker of rollouts uses them.
	known map[string]*rollout
	// none is the inventory of a namespace without one.
	none v1alpha1.PopulatedNamespace

	// closed has the names of the namespaces that are reconciled when they open.
	closed sync.Map

	mu sync.Mutex
	// busy are the namespaces that are reconciled or get objects of a rollout.
	busy map[string]*busy
	// written are the versions of objects that this process wrote and whose events have not come yet, by namespace.
	written map[string]map[types.UID]string
	// followed are the resources that are watched.
	followed sets.Set[schema.GroupVersionResource]
	// reports are what the workers report of each population, by name.
	reports map[string]report
}

// New returns a Controller that is not running yet.
func New(config Config) (*Controller, error) {
	namespaces, err := newNamespaces(config.Metadata)
	if err != nil {
		return nil, err
	}
	informers := externalversions.NewSharedInformerFactoryWithOptions(config.Nsinit, 0, externalversions.WithTransform(cached.WithoutManagedFields))
	inventories, populations := informers.Nsinit().V1alpha1().PopulatedNamespaces(), informers.Nsinit().V1alpha1().NamespacePopulations()
	c := &Controller{
		Config: config, informers: informers, namespaces: namespaces, inventories: inventories.Lister(), populations: populations.Lister(),
		statuses:  newQueue("population-status", nil),
		readiness: newQueue("population-readiness", nil),
		rollouts:  workers.NewQueue("population-rollout", clock.RealClock{}, minRolloutRetry, maxRolloutRetry),
		known:     map[string]*rollout{},
		busy:      map[string]*busy{},
		written:   map[string]map[types.UID]string{},
		followed:  sets.New[schema.GroupVersionResource](),
		reports:   map[string]report{},
	}
	c.repairs, c.changes = newQueue("population-repairs", c.Creator), newQueue("populated-namespaces", c.Creator)
	inventoriesRead, inventoriesErr := inventories.TypedInformer().AddTypedEventHandler(typedinformers.PopulatedNamespaceDetailedHandlerFuncs{
		AddFunc: c.inventoryAdded, UpdateFunc: c.inventoryUpdated,
		DeleteFunc: func(deleted typedinformers.DeletedPopulatedNamespace) { c.inventoryChanged(deleted.OptionalObj) },
	})
	populationsRead, populationsErr := populations.TypedInformer().AddTypedEventHandler(typedinformers.NamespacePopulationHandlerFuncs{
		AddFunc: func(p *v1alpha1.NamespacePopulation) { c.populationChanged(p.Name) }, UpdateFunc: c.populationUpdated,
		DeleteFunc: func(deleted typedinformers.DeletedNamespacePopulation) { c.populationChanged(deleted.GetName()) },
	})
	_, namespacesErr := namespaces.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*metav1.PartialObjectMetadata]{
		AddFunc: func(*metav1.PartialObjectMetadata) { c.enqueueRollouts() }, UpdateFunc: c.namespaceUpdated,
		DeleteFunc: func(deleted cache.DeletedObject[*metav1.PartialObjectMetadata]) {
			c.closed.Delete(deleted.GetName())
			c.mu.Lock()
			delete(c.written, deleted.GetName())
			c.mu.Unlock()
			c.enqueueRollouts()
		},
	})
	if err := errors.Join(inventoriesErr, populationsErr, namespacesErr); err != nil {
		return nil, err
	}
	c.synced = []cache.InformerSynced{inventoriesRead.HasSynced, populationsRead.HasSynced} // the namespaces may be forbidden
	config.Exemptions.OnChange(c.enqueueRollouts)
	return c, nil
}

func newQueue(name string, groupOf func(string) string) workers.Queue {
	return workers.NewFairQueue(name, clock.RealClock{}, minRetry, maxRetry, groupOf)
}

// Run runs until the context ends.
func (c *Controller) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "population-controller"))
	c.informers.StartWithContext(ctx)
	defer c.informers.Shutdown()
	defer c.running.Wait()
	c.running.Go(func() { c.namespaces.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return
	}
	c.running.Go(func() { workers.Run(ctx, c.statuses, 1, c.writeStatus) })
	c.running.Go(func() { workers.Run(ctx, c.readiness, 1, c.checkReadiness) })
	c.running.Go(func() { workers.Run(ctx, c.changes, changeWorkers, c.exclusively(c.changes)) })
	c.running.Go(func() { workers.Run(ctx, c.repairs, repairWorkers, c.exclusively(c.repairs)) })
	c.running.Go(func() { c.resync(ctx) })
	// If the namespaces or the list of exemptions cannot be read, such as without permission, each rollout reports so, and continues
	// when they change.
	await, cancel := context.WithTimeout(ctx, patience)
	cache.WaitForCacheSync(await.Done(), c.namespaces.HasSynced, c.Exemptions.HasSynced)
	cancel()
	workers.Run(ctx, c.rollouts, 1, c.sync)
}

// exclusively returns the function that handles a key of repairs or changes. If a worker of the other queue reconciles the
// namespace, the function queues the namespace again after that. It does not wait, so that the worker is free for others.
func (c *Controller) exclusively(from workers.Queue) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		c.mu.Lock()
		if b := c.busy[name]; b != nil {
			defer c.mu.Unlock()
			if b.next != c.repairs {
				b.next = from
			}
			return nil
		}
		c.busy[name] = newBusy()
		c.mu.Unlock()
		defer c.end(name)
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

// resync queues every namespace at times, one after the other by name.
func (c *Controller) resync(ctx context.Context) {
	last := ""
	for {
		inventories, _ := c.inventories.List(labels.Everything()) // a lister returns no error
		select {
		case <-ctx.Done():
			return
		case <-c.Clock.After(max(resyncPause, resync/time.Duration(max(1, len(inventories))))):
		}
		first, next := "", ""
		for _, inventory := range inventories {
			if name := inventory.Name; first == "" || name < first {
				first = name
			}
			if name := inventory.Name; name > last && (next == "" || name < next) {
				next = name
			}
		}
		if last = cmp.Or(next, first); last != "" {
			c.changes.Add(last)
		}
	}
}

// reconcile applies the populations to an open namespace. The initializer populates closed ones, which are reconciled when they open.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	c.closed.Store(name, nil) // before the reads: it can open after that
	if c.isClosed(name) {
		return nil
	}
	inventory, err := c.inventories.Get(name)
	if apierrors.IsNotFound(err) { // or the cache does not have it yet
		inventory, err = c.Nsinit.NsinitV1alpha1().PopulatedNamespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		c.closed.Delete(name)
		return utilapierrors.IgnoreAbsent(err)
	}
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil {
		c.closed.Delete(name)
	}
	if apierrors.IsNotFound(err) || err == nil && namespace.UID != inventory.Spec.NamespaceUID {
		return c.Populator.Forget(ctx, inventory)
	}
	if err != nil {
		return err
	}
	if helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil || metav1.HasLabel(namespace.ObjectMeta, v1alpha1.LabelFrozen) {
		return nil // a changed label queues it again when it is unfrozen
	}
	return c.Populator.Populate(ctx, namespace, population.Repair)
}

// inventoryAdded queues the namespace of an inventory that existed at the start: the Populator creates others.
func (c *Controller) inventoryAdded(inventory *v1alpha1.PopulatedNamespace, isInInitialList bool) {
	if isInInitialList {
		c.changes.Add(inventory.Name)
	}
	c.inventoryChanged(inventory)
}

func (c *Controller) inventoryUpdated(before, after *v1alpha1.PopulatedNamespace) {
	c.mu.Lock()
	isOwn := c.isOwn(after.Name, after.UID, after.ResourceVersion)
	c.mu.Unlock()
	isClosed := c.isClosed(after.Name)
	// A closed namespace without all of its objects can open nevertheless.
	if before.UID != after.UID || isClosed && !isApplied(after) {
		c.changes.Add(after.Name)
	}
	// What drifted while another process or the initializer applied it could not be repaired before the inventory has it.
	if !isClosed && !isOwn && !slices.Equal(hashesOf(before), hashesOf(after)) {
		c.observed(after, false, sets.New(after.Name))
	}
	c.inventoryChanged(before)
	c.inventoryChanged(after)
}

// hashesOf returns what identifies the objects whose drift is repaired.
func hashesOf(inventory *v1alpha1.PopulatedNamespace) (hashes []string) {
	for _, entry := range inventory.Status.Objects {
		if entry.ContentHash != "" {
			hashes = append(hashes, entry.ContentHash)
		}
	}
	return hashes
}

// inventoryChanged queues the populations of an inventory, which is nil if its last state is not known.
func (c *Controller) inventoryChanged(inventory *v1alpha1.PopulatedNamespace) {
	if inventory == nil {
		return
	}
	for _, entry := range inventory.Status.Objects {
		c.statuses.AddAfter(entry.Population, settle)
	}
}

func (c *Controller) populationUpdated(before, after *v1alpha1.NamespacePopulation) {
	switch {
	case before.UID != after.UID || before.Generation != after.Generation || !reflect.DeepEqual(before.Spec, after.Spec):
		c.populationChanged(after.Name)
	case !sameMetadata(before, after) || !readySince(before).Equal(readySince(after)):
		c.rollouts.Add(after.Name)
	}
}

// populationChanged queues a population and every namespace.
func (c *Controller) populationChanged(name string) {
	c.statuses.AddAfter(name, settle)
	c.readiness.Add(name)
	c.rollouts.Add(name)
	c.Retry()
	c.enqueueAll()
}

// enqueueAll queues every namespace. One that is being initialized can have no inventory yet.
func (c *Controller) enqueueAll() {
	inventories, _ := c.inventories.List(labels.Everything()) // a lister returns no error
	for _, inventory := range inventories {
		c.changes.Add(inventory.Name)
	}
	for _, name := range c.namespaces.GetStore().ListKeys() {
		if c.isClosed(name) {
			c.changes.Add(name)
		}
	}
}

// enqueueRollouts queues every population with scope All.
func (c *Controller) enqueueRollouts() {
	populations, _ := c.populations.List(labels.Everything()) // a lister returns no error
	for _, p := range populations {
		if p.Spec.Scope == v1alpha1.ScopeAll {
			c.rollouts.AddAfter(p.Name, settle)
		}
	}
}
