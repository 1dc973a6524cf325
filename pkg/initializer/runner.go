/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Minute
)

// Runner calls an initializer's function whenever it is its turn.
type Runner struct {
	options  Options
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// turns holds, for each namespace whose turn is being taken, how to end it.
	turns map[string]turn
}

type turn struct {
	uid types.UID // of the namespace
	end context.CancelFunc
}

// New returns a Runner that is not running yet.
func New(options Options) (*Runner, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("the options of the initializer are not valid: %w", err)
	}
	r := &Runner{
		options: options,
		// The server sends the records alone whose turn it is. That a record is
		// DELETED from this watch means that the turn is over, no more.
		informer: informers.NewFilteredNamespaceLifecycleInformer(options.Nsinit, 0, cache.Indexers{}, func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector("status.currentInitializer", options.Name).String()
		}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: options.Name, Clock: options.Clock}),
		turns: map[string]turn{},
	}
	_, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.mayStart,
		UpdateFunc: r.changed,
		DeleteFunc: r.over,
	})
	return r, err
}

// Run works until the context ends. It returns when every call of the initializer's
// function has.
func (r *Runner) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "initializer", r.options.Name)
	ctx = klog.NewContext(ctx, logger)
	defer r.queue.ShutDown()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { r.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		if ctx.Err() == nil {
			return errors.New("the records could not be read")
		}
		return nil
	}
	logger.Info("Waiting for namespaces", "workers", r.options.Workers)
	workers.Run(ctx, r.queue, r.options.Workers, r.take)
	return nil
}

// HasSynced says whether the initializer sees the namespaces whose turn it is.
func (r *Runner) HasSynced() bool { return r.informer.HasSynced() }

func (r *Runner) mayStart(object any) {
	if record, ok := object.(*v1alpha1.NamespaceLifecycle); ok {
		r.endTurnOfOther(record)
		r.queue.Add(record.Name)
	}
}

// changed ignores everything but another incarnation: the turn goes on, and the retry of
// one that failed has its own time.
func (r *Runner) changed(old, updated any) {
	before, ok := old.(*v1alpha1.NamespaceLifecycle)
	after, stillOK := updated.(*v1alpha1.NamespaceLifecycle)
	if ok && stillOK && before.UID != after.UID {
		r.mayStart(after)
	}
}

func (r *Runner) over(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn, taken := r.turns[key]; taken {
		turn.end()
	}
	r.queue.Forget(key)
}

// endTurnOfOther ends a turn that was taken for a former namespace of the same name.
func (r *Runner) endTurnOfOther(record *v1alpha1.NamespaceLifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn, taken := r.turns[record.Name]; taken && turn.uid != record.Spec.NamespaceUID {
		turn.end()
	}
}
