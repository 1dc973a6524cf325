/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	informers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/leader"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = time.Minute
)

// operation is what an initializer does with a namespace.
type operation string

const (
	initialize operation = "initialize"
	finalize   operation = "finalize"
)

// Runner calls an initializer's functions when the initializer has its turn.
type Runner struct {
	options  Options
	metrics  *runnerMetrics
	registry *prometheus.Registry // nil if Options.Metrics is set
	watchdog *leaderelection.HealthzAdaptor
	queue    workers.Queue
	// watches are the informers of NamespaceLifecycles that may need the operation.
	watches map[operation]informers.NamespaceLifecycleIndexInformer
	// objects are the turns for pods and Jobs. It is nil without InitializeObject.
	objects *objectTurns
	// informers are all informers.
	informers []interface {
		RunWithContext(ctx context.Context)
		HasSynced() bool
	}
	// waiting says that another replica acts.
	waiting atomic.Bool
	// registered says that the configuration has the initializer.
	registered atomic.Bool

	mu sync.Mutex
	// turns are the calls in progress, by the name of the namespace, or the key of the pod or Job.
	turns map[string]*call
	// ended has when this process ended a turn, or called in a dry run, for the turns that the watch may still show.
	ended map[ended]time.Time
}

// ended is a turn that has ended, of one lifecycle, pod or Job.
type ended struct {
	uid       types.UID
	operation operation
}

// New returns a Runner that is not running yet.
func New(options Options) (*Runner, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("the options of the initializer are not valid: %w", err)
	}
	r := &Runner{
		options:  options,
		metrics:  newMetrics(options.Name),
		watchdog: leaderelection.NewLeaderHealthzAdaptor(leader.HealthGrace),
		queue:    workers.NewFairQueue(options.Name, options.Clock, minRetryDelay, maxRetryDelay, options.GroupOf),
		watches:  map[operation]informers.NamespaceLifecycleIndexInformer{},
		turns:    map[string]*call{},
		ended:    map[ended]time.Time{},
	}
	if options.Metrics == nil {
		r.registry = prometheus.NewRegistry()
		r.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
		options.Metrics = r.registry
	}
	if err := r.metrics.register(options.Metrics); err != nil {
		return nil, fmt.Errorf("cannot register the metrics: %w", err)
	}
	// The server only sends lifecycles in which the initializer has its turn. DELETED means that the turn is over.
	if options.Initialize != nil {
		if err := r.watch(initialize, fields.OneTermEqualSelector("status.currentInitializer", options.Name)); err != nil {
			return nil, err
		}
	}
	if options.Finalize != nil {
		if err := r.watch(finalize, fields.OneTermEqualSelector("status.phase", string(v1alpha1.LifecycleTerminating))); err != nil {
			return nil, err
		}
	}
	if options.InitializeObject != nil {
		if err := r.watchObjects(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// watch creates the informer of an operation.
func (r *Runner) watch(o operation, selector fields.Selector) error {
	informer := informers.NewTypedFilteredNamespaceLifecycleInformer(r.options.Nsinit, 0, nil, func(list *metav1.ListOptions) {
		list.FieldSelector = selector.String()
	})
	if err := informer.SetTransform(cached.WithoutManagedFields); err != nil {
		return err
	}
	r.watches[o], r.informers = informer, append(r.informers, informer)
	_, err := informer.AddTypedEventHandler(informers.NamespaceLifecycleFilteringHandler{
		FilterFunc: func(lifecycle *v1alpha1.NamespaceLifecycle) bool { // nil: it was deleted, and its last state is not known
			return lifecycle != nil && (o == initialize || r.takesPart(lifecycle))
		},
		Handler: informers.NamespaceLifecycleHandlerFuncs{
			AddFunc: r.mayStart,
			UpdateFunc: func(before, now *v1alpha1.NamespaceLifecycle) {
				if before.UID != now.UID { // a call goes on, and a failed one is retried after its delay
					r.mayStart(now)
				}
			},
			DeleteFunc: func(deleted informers.DeletedNamespaceLifecycle) { r.over(o, deleted.OptionalObj) },
		},
	})
	return err
}

// takesPart reports whether a lifecycle waits for this participant.
func (r *Runner) takesPart(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return slices.Contains(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(r.options.Name))
}

// Run runs until the context ends, and returns after every call of the initializer's functions has returned. With an
// Election, a lost lease is an error; the process must restart then.
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
	group, ctx := errgroup.WithContext(ctx)
	if r.options.Registration != nil {
		// Namespaces can wait for the initializer while its registration is refused.
		group.Go(func() error { r.register(ctx); return nil })
	}
	group.Go(func() error {
		if r.options.Election == nil {
			return r.act(ctx)
		}
		r.waiting.Store(true)
		return r.options.Election.Lead(ctx, r.options.Core, r.watchdog, func(ctx context.Context) error {
			r.waiting.Store(false)
			return r.act(ctx)
		})
	})
	return group.Wait()
}

// act takes turns until the context ends or Alongside returns an error.
func (r *Runner) act(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, informer := range r.informers {
		group.Go(func() error { informer.RunWithContext(ctx); return nil })
	}
	if cache.WaitForCacheSync(ctx.Done(), r.listed) {
		if r.options.Alongside != nil {
			group.Go(func() error {
				if err := r.options.Alongside(ctx, r); ctx.Err() == nil {
					return err
				}
				return nil
			})
		}
		if !r.options.DryRun {
			group.Go(func() error { r.reportServed(ctx); return nil })
		}
		if r.objects != nil {
			group.Go(func() error { workers.Run(ctx, r.objects.queue, r.options.Workers, r.objects.take); return nil })
		}
		klog.FromContext(ctx).Info("Waiting for namespaces", "workers", r.options.Workers)
		workers.Run(ctx, r.queue, r.options.Workers, r.take)
	}
	return group.Wait()
}

// HasSynced reports whether the Runner is registered, if it has to be, and has listed the namespaces in which the initializer
// has its turn.
func (r *Runner) HasSynced() bool {
	return (r.options.Registration == nil || r.registered.Load()) && r.listed()
}

func (r *Runner) listed() bool {
	for _, informer := range r.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// Retry immediately calls the functions for every namespace whose last call failed. It is for initializers that observe
// that the cause of the failures has changed.
func (r *Runner) Retry() {
	for _, informer := range r.watches {
		for _, name := range informer.GetStore().ListKeys() {
			r.queue.Forget(name)
			r.queue.Add(name)
		}
	}
}

// mayStart ends the turn in a former namespace of the same name, and adds the namespace to the queue.
func (r *Runner) mayStart(lifecycle *v1alpha1.NamespaceLifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn := r.turns[lifecycle.Name]; turn != nil && turn.lifecycle.Spec.NamespaceUID != lifecycle.Spec.NamespaceUID {
		turn.end()
	}
	r.queue.Add(lifecycle.Name)
}

// over ends the turn of an operation. The turn of the other operation, or that in the next namespace of the name, may have begun
// already.
func (r *Runner) over(o operation, lifecycle *v1alpha1.NamespaceLifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ended, ended{lifecycle.UID, o})
	if turn := r.turns[lifecycle.Name]; turn != nil && turn.operation == o && turn.lifecycle.Spec.NamespaceUID == lifecycle.Spec.NamespaceUID {
		turn.end()
	}
	r.queue.Forget(lifecycle.Name)
}
