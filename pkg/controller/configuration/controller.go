/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	informers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// Name is the name of the controller in logs and metrics.
const Name = "configuration"

const (
	// settleDelay combines the changes of many lifecycles into one count.
	settleDelay = time.Second
	// recountInterval is the time between two counts of the namespaces that wait for a deleted
	// configuration.
	recountInterval = 10 * time.Second

	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// byConfiguration is the index of lifecycles by the configurations that they wait for.
const byConfiguration = "configuration"

// Dependencies is what a Controller works with.
type Dependencies struct {
	Nsinit         versioned.Interface
	Configurations informers.NamespaceInitializerConfigurationInformer
	Lifecycles     informers.NamespaceLifecycleInformer
	Clock          clock.WithTicker
}

// Controller updates the status of configurations, and releases deleted ones.
type Controller struct {
	Dependencies

	configurations listers.NamespaceInitializerConfigurationLister
	synced         []cache.InformerSynced
	queue          workers.Queue
	// deletions are the deleted configurations that this process has seen, by name. Only the worker uses it.
	deletions map[string]deletion
}

// deletion is when this process saw that a configuration is being deleted.
type deletion struct {
	uid  types.UID
	seen time.Time
}

// New returns a controller that is not running yet.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies:   d,
		configurations: d.Configurations.Lister(),
		queue:          workers.NewQueue(Name, d.Clock, minRetryDelay, maxRetryDelay),
		deletions:      map[string]deletion{},
	}
	typed := cache.NewTypedSharedIndexInformer[*v1alpha1.NamespaceInitializerConfiguration](d.Configurations.Informer())
	registration, err := typed.AddTypedEventHandler(informers.NamespaceInitializerConfigurationHandlerFuncs{
		AddFunc:    func(*v1alpha1.NamespaceInitializerConfiguration) { c.enqueueAll() },
		UpdateFunc: c.configurationUpdated,
		DeleteFunc: func(informers.DeletedNamespaceInitializerConfiguration) { c.enqueueAll() },
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch configurations: %w", err)
	}
	c.synced = append(c.synced, registration.HasSynced)
	if err := d.Lifecycles.Informer().AddIndexers(cache.Indexers{byConfiguration: pendingOn}); err != nil {
		return nil, err
	}
	lifecycles := cache.NewTypedSharedIndexInformer[*v1alpha1.NamespaceLifecycle](d.Lifecycles.Informer())
	registration, err = lifecycles.AddTypedEventHandler(informers.NamespaceLifecycleHandlerFuncs{
		AddFunc:    c.lifecycleChanged,
		UpdateFunc: func(_, lifecycle *v1alpha1.NamespaceLifecycle) { c.lifecycleChanged(lifecycle) },
		DeleteFunc: func(lifecycle informers.DeletedNamespaceLifecycle) {
			if lifecycle.OptionalObj != nil {
				c.lifecycleChanged(lifecycle.OptionalObj)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch NamespaceLifecycles: %w", err)
	}
	c.synced = append(c.synced, registration.HasSynced)
	return c, nil
}

// enqueueAll adds every configuration: a name that one registers has no effect in those after it.
func (c *Controller) enqueueAll() {
	for _, name := range c.Configurations.Informer().GetStore().ListKeys() {
		c.queue.Add(name)
	}
}

func (c *Controller) configurationUpdated(oldConfiguration, newConfiguration *v1alpha1.NamespaceInitializerConfiguration) {
	switch {
	case oldConfiguration.UID != newConfiguration.UID || oldConfiguration.Generation != newConfiguration.Generation || oldConfiguration.DeletionTimestamp.IsZero() != newConfiguration.DeletionTimestamp.IsZero(),
		!slices.Equal(reportedNames(oldConfiguration), reportedNames(newConfiguration)): // activation: WhenServed may apply now
		c.enqueueAll()
	case newConfiguration.DeletionTimestamp != nil && onlyReported(oldConfiguration, newConfiguration): // needs no count of namespaces
	default:
		c.queue.Add(newConfiguration.Name)
	}
}

// lifecycleChanged re-queues the configurations of a plan.
func (c *Controller) lifecycleChanged(lifecycle *v1alpha1.NamespaceLifecycle) {
	for _, planned := range lifecycle.Spec.Plan {
		if planned.Configuration != nil {
			c.queue.AddAfter(planned.Configuration.Name, settleDelay)
		}
	}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return errors.New("stopped before the caches were filled")
	}
	workers.Run(ctx, c.queue, 1, c.reconcile)
	return nil
}

func (c *Controller) reconcile(ctx context.Context, name string) error {
	configuration, err := c.configurations.Get(name)
	if apierrors.IsNotFound(err) {
		delete(c.deletions, name)
		return nil
	}
	if err != nil {
		return err
	}
	all, _ := c.configurations.List(labels.Everything())
	updated, overdue := withStatus(configuration, all, c.countCached(configuration), c.Clock.Now())
	if overdue > 0 {
		c.queue.AddAfter(name, overdue)
	}
	if updated != nil {
		if configuration, err = c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return utilapierrors.IgnoreAbsent(err)
		}
	}
	if configuration.DeletionTimestamp == nil || !slices.Contains(configuration.Spec.Finalizers, v1alpha1.FinalizerKubernetes) {
		return nil
	}
	if left := c.drainLeft(configuration); left > 0 {
		c.queue.AddAfter(name, left)
		return nil
	}
	return c.finalize(ctx, configuration)
}

// drainLeft returns the time until no more namespaces can begin to wait for a deleted configuration.
func (c *Controller) drainLeft(configuration *v1alpha1.NamespaceInitializerConfiguration) time.Duration {
	known, ok := c.deletions[configuration.Name]
	if !ok || known.uid != configuration.UID {
		known = deletion{configuration.UID, c.Clock.Now()}
		c.deletions[configuration.Name] = known
	}
	return timing.DrainPeriod - c.Clock.Since(known.seen)
}

// finalize releases a drained configuration if no namespace in storage waits for it.
func (c *Controller) finalize(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration) error {
	pending, err := c.countLive(ctx, configuration)
	if err != nil {
		return fmt.Errorf("cannot count the namespaces that wait: %w", err)
	}
	if pending > 0 {
		c.queue.AddAfter(configuration.Name, recountInterval)
		return nil
	}
	updated := configuration.DeepCopy()
	updated.Spec.Finalizers = slices.DeleteFunc(updated.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerKubernetes })
	_, err = c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Finalize(ctx, updated.Name, updated, metav1.UpdateOptions{})
	if err == nil {
		klog.FromContext(ctx).Info("Released the deleted configuration", "configuration", configuration.Name)
	}
	return utilapierrors.IgnoreAbsent(err)
}

func (c *Controller) countCached(configuration *v1alpha1.NamespaceInitializerConfiguration) int {
	names, _ := c.Lifecycles.Informer().GetIndexer().IndexKeys(byConfiguration, string(configuration.UID)) // the index exists
	return len(names)
}

// countLive reads all lifecycles from storage, in pages.
func (c *Controller) countLive(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration) (int, error) {
	count := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		uids, err := pendingOn(object)
		if slices.Contains(uids, string(configuration.UID)) {
			count++
		}
		return err
	})
	return count, err
}
