/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/absent"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

// Name is the name of the controller in logs and metrics.
const Name = "lifecycle"

// maxRetryDelay bounds how long the controller waits before it tries a name again that
// failed. Whatever was in the way, a namespace must not stay closed for long after.
const maxRetryDelay = 30 * time.Second

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Nsinit     versioned.Interface
	Namespaces coreinformers.NamespaceInformer
	Records    informers.NamespaceLifecycleInformer
	Exemptions *exemptions.List
	Events     record.EventRecorder
	Metrics    *Metrics
	Clock      clock.WithTicker
}

// Controller drives each namespace through its life.
type Controller struct {
	Dependencies

	namespaces corelisters.NamespaceLister
	records    listers.NamespaceLifecycleLister
	synced     []cache.InformerSynced
	queue      workqueue.TypedRateLimitingInterface[string]
}

// New returns a controller that is not running yet. It registers handlers with the
// informers, which must be started afterwards.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies: d,
		namespaces:   d.Namespaces.Lister(),
		records:      d.Records.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: Name, Clock: d.Clock}),
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, updated any) { c.enqueue(updated) },
		DeleteFunc: c.enqueue,
	}
	for _, informer := range []cache.SharedIndexInformer{d.Namespaces.Informer(), d.Records.Informer()} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("cannot watch: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	d.Exemptions.OnChange(c.enqueueAll)
	return c, nil
}

// enqueue notes the name of a namespace or a record, which are the same.
func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

func (c *Controller) enqueueAll() {
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return
	}
	for _, namespace := range namespaces {
		c.queue.Add(namespace.Name)
	}
}

// Run works on at most count names at a time until the context ends, and returns when all
// work has.
func (c *Controller) Run(ctx context.Context, count int) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	logger.Info("Starting")
	if !cache.WaitForCacheSync(ctx.Done(), append(c.synced, c.Exemptions.HasSynced)...) {
		return errors.New("stopped before the caches were filled")
	}
	logger.Info("Caches are filled", "workers", count)
	workers.Run(ctx, c.queue, count, c.handle)
	logger.Info("Stopped")
	return nil
}

// handle reconciles a name, and counts failures. Conflicts are none.
func (c *Controller) handle(ctx context.Context, name string) error {
	err := c.reconcile(ctx, name)
	if err != nil && !apierrors.IsConflict(err) {
		c.Metrics.failures.Inc()
	}
	return err
}

// reconcile takes the next step for a name. The caches only say whether there may be one:
// it is taken if it is still the next one when both objects are read live.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	exempt, err := c.Exemptions.Has(name)
	if err != nil {
		return err
	}
	s, err := c.cached(name)
	if err != nil {
		return err
	}
	if exempt && leftAlone(s) {
		return nil
	}
	step := next(s)
	if step == nothing {
		return c.report(ctx, s)
	}
	if s, err = c.live(ctx, name); err != nil {
		return err
	}
	if now := next(s); now != step {
		// The cache is behind; its next event comes back to this name. Should it be
		// the live state that moved on to a step of its own, take that one.
		step = now
	}
	klog.FromContext(ctx).V(2).Info("Next step", "action", step)
	return c.take(ctx, step, s)
}

// leftAlone says whether an exempt namespace may be left alone. One that was closed, or
// got a record, before it was exempt has to be brought to its end.
func leftAlone(s state) bool {
	return s.record == nil && (s.namespace == nil || !isClosed(s.namespace))
}

func (c *Controller) cached(name string) (state, error) {
	var s state
	namespace, err := c.namespaces.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return s, err
	}
	if err == nil {
		s.namespace = namespace
	}
	lifecycle, err := c.records.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return s, err
	}
	if err == nil {
		s.record = lifecycle
	}
	return s, nil
}

// live reads both objects, the record first: a record that is found belongs to the
// namespace that is found after it, or to a former one, which its UID tells.
func (c *Controller) live(ctx context.Context, name string) (state, error) {
	var s state
	lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !absent.Is(err) {
		return s, fmt.Errorf("cannot read the record: %w", err)
	}
	if err == nil {
		s.record = lifecycle
	}
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !absent.Is(err) {
		return s, fmt.Errorf("cannot read the namespace: %w", err)
	}
	if err == nil {
		s.namespace = namespace
	}
	return s, nil
}
