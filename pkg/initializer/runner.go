/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/leader"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Minute
)

// operation is one of the two things that an initializer does with a namespace.
type operation string

const (
	initialize operation = "initialize"
	finalize   operation = "finalize"
)

// Runner calls an initializer's functions whenever it is its turn.
type Runner struct {
	options  Options
	metrics  *runnerMetrics
	registry metrics.KubeRegistry
	watchdog *leaderelection.HealthzAdaptor
	queue    workqueue.TypedRateLimitingInterface[string]
	// watches tell of namespaces that may need something, one for each operation.
	watches map[operation]cache.SharedIndexInformer
	// waiting says that another replica acts.
	waiting atomic.Bool

	mu sync.Mutex
	// turns holds, for each namespace whose turn is being taken, how to end it.
	turns map[string]turn
	// rehearsed are the records for which a dry run was made.
	rehearsed map[types.UID]bool
}

type turn struct {
	uid       types.UID // of the namespace
	operation operation
	end       context.CancelFunc
}

// New returns a Runner that is not running yet.
func New(options Options) (*Runner, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("the options of the initializer are not valid: %w", err)
	}
	r := &Runner{
		options:  options,
		metrics:  newMetrics(options.Name),
		registry: metrics.NewKubeRegistry(),
		watchdog: leaderelection.NewLeaderHealthzAdaptor(leader.HealthGrace),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: options.Name, Clock: options.Clock}),
		watches:   map[operation]cache.SharedIndexInformer{},
		turns:     map[string]turn{},
		rehearsed: map[types.UID]bool{},
	}
	if options.Metrics != nil {
		r.registry = options.Metrics
	}
	if err := r.metrics.register(r.registry); err != nil {
		return nil, fmt.Errorf("cannot register the metrics: %w", err)
	}
	// The server sends the records alone whose turn it is. That a record is DELETED from
	// this watch means that the turn is over, no more.
	if err := r.watch(initialize, fields.OneTermEqualSelector("status.currentInitializer", options.Name)); err != nil {
		return nil, err
	}
	if options.Finalize != nil {
		if err := r.watch(finalize, fields.OneTermEqualSelector("status.phase", string(v1alpha1.LifecycleTerminating))); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// watch makes the informer of one operation.
func (r *Runner) watch(o operation, selector fields.Selector) error {
	informer := informers.NewFilteredNamespaceLifecycleInformer(r.options.Nsinit, 0, cache.Indexers{}, func(list *metav1.ListOptions) {
		list.FieldSelector = selector.String()
	})
	r.watches[o] = informer
	_, err := informer.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool { return o == initialize || r.takesPart(object) },
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    r.mayStart,
			UpdateFunc: r.changed,
			DeleteFunc: func(object any) { r.over(o, object) },
		},
	})
	return err
}

// takesPart says whether a record waits for this participant.
func (r *Runner) takesPart(object any) bool {
	record, ok := object.(*v1alpha1.NamespaceLifecycle)
	return !ok || slices.Contains(record.Spec.Finalizers, v1alpha1.FinalizerName(r.options.Name))
}

// Run works until the context ends. It returns when every call of the initializer's
// functions has. With an Election, a lease that was lost is an error, after which the
// process is to start again.
func (r *Runner) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "initializer", r.options.Name)
	ctx = klog.NewContext(ctx, logger)
	defer r.queue.ShutDown()
	if r.options.Events == nil {
		broadcaster := record.NewBroadcaster(record.WithContext(ctx))
		defer broadcaster.Shutdown()
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.options.Core.CoreV1().Events("")})
		r.options.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: r.options.Name})
	}
	if r.options.Registration != nil {
		if err := r.register(ctx); err != nil {
			return err
		}
	}
	if r.options.Election == nil {
		return r.act(ctx)
	}
	r.waiting.Store(true)
	return r.options.Election.Lead(ctx, r.options.Core, r.watchdog, func(ctx context.Context) error {
		r.waiting.Store(false)
		return r.act(ctx)
	})
}

// act takes turns until the context ends.
func (r *Runner) act(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var synced []cache.InformerSynced
	for _, informer := range r.watches {
		group.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		if ctx.Err() == nil {
			return errors.New("the records could not be read")
		}
		return nil
	}
	if r.options.Alongside != nil {
		group.Go(func() {
			if err := r.options.Alongside(ctx, r); err != nil && ctx.Err() == nil {
				cancel(&alongsideError{err})
			}
		})
	}
	klog.FromContext(ctx).Info("Waiting for namespaces", "workers", r.options.Workers)
	workers.Run(ctx, r.queue, r.options.Workers, r.take)
	if failed, ok := errors.AsType[*alongsideError](context.Cause(ctx)); ok {
		return failed.err
	}
	return nil
}

// alongsideError is why what runs alongside has ended.
type alongsideError struct{ err error }

func (e *alongsideError) Error() string { return e.err.Error() }

// HasSynced says whether the initializer sees the namespaces whose turn it is.
func (r *Runner) HasSynced() bool {
	for _, informer := range r.watches {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// following says whether another replica acts.
func (r *Runner) following() bool { return r.waiting.Load() }

// Retry calls the functions at once for every namespace whose last call failed, instead of when
// its delay is over. It is for initializers that see that what was in the way has changed.
func (r *Runner) Retry() {
	for _, informer := range r.watches {
		for _, name := range informer.GetStore().ListKeys() {
			r.queue.Forget(name)
			r.queue.Add(name)
		}
	}
}

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

// over ends the turn of one operation. The other one may have begun already.
func (r *Runner) over(o operation, object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn, taken := r.turns[key]; taken && turn.operation == o {
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
