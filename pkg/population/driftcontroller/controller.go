/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package driftcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/generated/informers/externalversions"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/tombstone"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	// resync is how often every namespace is looked at, whatever was seen of it.
	resync = 10 * time.Minute
	// recheck is how soon a population that is not ready is checked again: kinds and permissions are not watched.
	recheck = 10 * time.Second
	// settle is how long the status of a population waits for more to come of it.
	settle     = 500 * time.Millisecond
	minRetry   = 100 * time.Millisecond
	maxRetry   = 5 * time.Minute
	workersMax = 2
)

// PopulateFunc applies to an open namespace what it is to follow.
type PopulateFunc func(ctx context.Context, namespace *corev1.Namespace, closed bool) error

// Config is what a Controller needs.
type Config struct {
	Core     kubernetes.Interface
	Nsinit   versioned.Interface
	Metadata metadata.Interface
	Followed *Followed
	// Populate does what is to be done in a namespace, Forget removes the record of one that
	// is gone.
	Populate PopulateFunc
	Forget   func(context.Context, *v1alpha1.PopulatedNamespace) error
	// Readiness returns the condition Ready of a population.
	Readiness func(context.Context, *v1alpha1.NamespacePopulation) metav1.Condition
}

// Controller corrects drift in open namespaces.
type Controller struct {
	Config
	namespaces, statuses workqueue.TypedRateLimitingInterface[string]
	readiness            workqueue.TypedRateLimitingInterface[string]
	records              listers.PopulatedNamespaceLister
	populations          listers.NamespacePopulationLister
	factory              externalversions.SharedInformerFactory
	// retry is called when a population has changed, for which closed namespaces may wait.
	retry func()
}

// New returns a Controller that is not running yet.
func New(config Config) (*Controller, error) {
	c := &Controller{
		Config:     config,
		namespaces: newQueue("populated-namespaces"),
		statuses:   newQueue("population-status"),
		readiness:  newQueue("population-readiness"),
		factory:    externalversions.NewSharedInformerFactory(config.Nsinit, resync),
	}
	informers := c.factory.Nsinit().V1alpha1()
	c.records, c.populations = informers.PopulatedNamespaces().Lister(), informers.NamespacePopulations().Lister()
	if _, err := informers.PopulatedNamespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.enqueue(object); c.recordChanged(object) },
		UpdateFunc: c.recordUpdated,
		DeleteFunc: c.recordChanged,
	}); err != nil {
		return nil, err
	}
	_, err := informers.NamespacePopulations().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.populationChanged,
		UpdateFunc: c.populationUpdated,
		DeleteFunc: c.populationChanged,
	})
	return c, err
}

func newQueue(name string) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name})
}

// Run works until the context ends. It calls retry when a population has changed, for which closed
// namespaces may wait.
func (c *Controller) Run(ctx context.Context, retry func()) error {
	c.retry = retry
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "drift-controller"))
	var group sync.WaitGroup
	defer group.Wait()
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	for kind, synced := range c.factory.WaitForCacheSync(ctx.Done()) {
		if !synced && ctx.Err() == nil {
			return fmt.Errorf("the objects of %s could not be read", kind)
		}
	}
	c.Followed.begin(func(resource schema.GroupVersionResource) {
		informer := c.watch(ctx, resource)
		group.Go(func() { informer.RunWithContext(ctx) })
	})
	group.Go(func() { workers.Run(ctx, c.statuses, 1, c.reportStatus) })
	group.Go(func() { workers.Run(ctx, c.readiness, 1, c.checkReadiness) })
	workers.Run(ctx, c.namespaces, workersMax, c.reconcile)
	return nil
}

// reconcile brings a namespace in line with the populations. What is closed is being
// initialized, and what is deleted loses everything anyway.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	record, err := c.records.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && namespace.UID != record.Spec.NamespaceUID {
		// The garbage collector does so, too, where it runs.
		return c.Forget(ctx, record)
	}
	if err != nil {
		return err
	}
	if helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil {
		return nil
	}
	return c.Populate(ctx, namespace, false)
}

// enqueue queues the namespace of a record.
func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.namespaces.Add(key)
	}
}

func (c *Controller) recordUpdated(old, updated any) {
	before, ok := old.(*v1alpha1.PopulatedNamespace)
	after, stillOK := updated.(*v1alpha1.PopulatedNamespace)
	if !ok || !stillOK {
		return
	}
	// What was written is what the Populator did. A resync tells of nothing new.
	if before.ResourceVersion == after.ResourceVersion || before.UID != after.UID {
		c.enqueue(after)
	}
	c.recordChanged(before)
	c.recordChanged(after)
}

// recordChanged has the status of the record's populations told anew.
func (c *Controller) recordChanged(object any) {
	record, ok := tombstone.Object[*v1alpha1.PopulatedNamespace](object)
	if !ok {
		return
	}
	for _, entry := range record.Status.Objects {
		c.statuses.AddAfter(entry.Population, settle)
	}
}

func (c *Controller) populationUpdated(old, updated any) {
	before, ok := old.(*v1alpha1.NamespacePopulation)
	after, stillOK := updated.(*v1alpha1.NamespacePopulation)
	if ok && stillOK && (before.Generation != after.Generation || before.UID != after.UID) {
		c.populationChanged(after)
	}
}

// populationChanged has every namespace looked at: who is concerned shows there.
func (c *Controller) populationChanged(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.statuses.AddAfter(key, settle)
		c.readiness.Add(key)
	}
	c.retry()
	records, err := c.records.List(labels.Everything())
	if err != nil {
		return // it reads from memory
	}
	for _, record := range records {
		c.namespaces.Add(record.Name)
	}
}

var errNoNamespace = errors.New("the object belongs to no namespace")

// namespaceOf returns the namespace that an object of a population is for.
func namespaceOf(object metav1.Object) (string, error) {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace, nil
	}
	for _, owner := range object.GetOwnerReferences() {
		if owner.APIVersion == "v1" && owner.Kind == "Namespace" {
			return owner.Name, nil
		}
	}
	return "", errNoNamespace
}
