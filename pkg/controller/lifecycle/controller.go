/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
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
	// StalledAfter is how long a turn may last before it is reported as stalled. Zero:
	// none is.
	StalledAfter time.Duration
}

// Controller drives each namespace through its life.
type Controller struct {
	Dependencies

	namespaces corelisters.NamespaceLister
	records    listers.NamespaceLifecycleLister
	synced     []cache.InformerSynced
	queue      workqueue.TypedRateLimitingInterface[string]

	mu     sync.Mutex
	closed sets.Set[string]

	turns   turns
	listing listing
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
		closed: sets.New[string](),
		turns:  turns{seen: map[string]sighting{}},
	}
	records := d.Records.Informer()
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		d.Namespaces.Informer(): cache.ResourceEventHandlerFuncs{
			AddFunc:    c.namespaceSeen,
			UpdateFunc: c.namespaceUpdated,
			DeleteFunc: c.namespaceGone,
		},
		records: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    c.recordAdded,
			UpdateFunc: c.recordUpdated,
			DeleteFunc: c.enqueue,
		},
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("cannot watch: %w", err)
		}
		if informer == records {
			c.listing.synced = registration.HasSynced
		} else {
			c.synced = append(c.synced, registration.HasSynced)
		}
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

// enqueueAll notes every name. A record may be all that is left of one.
func (c *Controller) enqueueAll() {
	for _, informer := range []cache.SharedIndexInformer{c.Namespaces.Informer(), c.Records.Informer()} {
		for _, key := range informer.GetStore().ListKeys() {
			c.queue.Add(key)
		}
	}
}

// recordAdded tells of a record that is new. Of those that were there before this process
// led, it was told then.
func (c *Controller) recordAdded(object any, isInInitialList bool) {
	if lifecycle, ok := object.(*v1alpha1.NamespaceLifecycle); ok && !isInInitialList {
		c.tell(nil, lifecycle)
	}
	c.enqueue(object)
}

func (c *Controller) recordUpdated(was, is any) {
	before, ok := was.(*v1alpha1.NamespaceLifecycle)
	if after, isRecord := is.(*v1alpha1.NamespaceLifecycle); ok && isRecord {
		c.tell(before, after)
		for _, entry := range ended(before, after) {
			c.Metrics.turns.WithLabelValues(entry.Name, string(entry.State)).Observe(entry.EndTime.Sub(entry.StartTime.Time).Seconds())
		}
	}
	c.enqueue(is)
}

func (c *Controller) namespaceSeen(object any) {
	if namespace, ok := object.(*corev1.Namespace); ok {
		c.note(namespace.Name, helper.IsClosed(namespace))
	}
	c.enqueue(object)
}

func (c *Controller) namespaceUpdated(was, is any) {
	before, ok := was.(*corev1.Namespace)
	after, isNamespace := is.(*corev1.Namespace)
	if ok && isNamespace && onlyRefusalReported(before, after) {
		return
	}
	c.namespaceSeen(is)
}

func (c *Controller) namespaceGone(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.note(key, false)
	}
	c.enqueue(object)
}

// note counts the namespaces that are closed.
func (c *Controller) note(name string, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if closed {
		c.closed.Insert(name)
	} else {
		c.closed.Delete(name)
	}
	c.Metrics.pending.Set(float64(c.closed.Len()))
}

// onlyRefusalReported says whether all that happened to a namespace is the report that its
// record cannot be created, or that another step fails. The report must not bring on the next try, which is due after a
// delay: the server may word each refusal in another way, so that each try would lead to a
// report, and each report to a try.
func onlyRefusalReported(before, after *corev1.Namespace) bool {
	if before.ResourceVersion == after.ResourceVersion || !slices.ContainsFunc(after.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionInitializing && c.Reason == v1alpha1.ReasonNoRecord ||
			c.Type == v1alpha1.ConditionFailing && c.Status == corev1.ConditionTrue
	}) {
		return false
	}
	before, after = before.DeepCopy(), after.DeepCopy()
	for _, namespace := range []*corev1.Namespace{before, after} {
		namespace.ResourceVersion, namespace.ManagedFields, namespace.Status.Conditions = "", nil, nil
	}
	return equality.Semantic.DeepEqual(before, after)
}

// Run works on at most count names at a time until the context ends, and returns when all
// work has.
func (c *Controller) Run(ctx context.Context, count int) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	logger.Info("Starting")
	var listing sync.WaitGroup
	defer listing.Wait()
	if !cache.WaitForCacheSync(ctx.Done(), append(c.synced, c.Exemptions.HasSynced)...) {
		return errors.New("stopped before the caches were filled")
	}
	listing.Go(func() { c.watchListing(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.listing.settled) {
		return errors.New("stopped before NamespaceLifecycles were listed")
	}
	logger.Info("Caches are filled", "workers", count)
	workers.Run(ctx, c.queue, count, c.handle)
	logger.Info("Stopped")
	return nil
}

// handle reconciles a name, and counts failures. A state that changed meanwhile is none.
func (c *Controller) handle(ctx context.Context, name string) error {
	err := c.reconcile(ctx, name)
	if err != nil && !apierrors.IsConflict(err) && !errors.Is(err, errExists) {
		c.Metrics.failures.Inc()
	}
	c.reportFailing(ctx, name, err)
	return err
}

// reconcile takes the next step for a name. The caches only say whether there may be one:
// it is taken if it is still the next one when both objects are read live.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	exempt, known := c.Exemptions.Has(name)
	if !known {
		return nil // the list comes back to every name when it is there
	}
	if problem := c.listing.current(); problem != nil {
		return c.reconcileUnlisted(ctx, name, exempt, problem)
	}
	s, err := c.cached(name)
	if err != nil {
		return err
	}
	if exempt && leftAlone(s) {
		return nil
	}
	c.measureTurn(name, &s)
	step := next(s)
	if step == nothing {
		if s.turn.wake > 0 {
			c.queue.AddAfter(name, s.turn.wake)
		}
		return c.report(ctx, s)
	}
	switch step {
	case createRecord, withdrawReady:
		// The server reads the namespace live before it creates a record, and refuses
		// what is there already. A deletion is final, and the write that withdraws Ready
		// fails if the namespace changed since; the record may not be readable.
		if err := c.take(ctx, step, s); !errors.Is(err, errExists) {
			return inStep(step, err)
		}
	}
	// gofail: var lifecycleBeforeLiveRead struct{}
	if s, err = c.live(ctx, name); err != nil {
		return err
	}
	c.measureTurn(name, &s)
	if now := next(s); now != step {
		// The cache is behind. What happens before it catches up may never be an event, such as the
		// removal of a record that the cache never showed.
		c.queue.AddAfter(name, listInterval)
		step = now
	}
	klog.FromContext(ctx).V(2).Info("Next step", "action", step)
	return inStep(step, c.take(ctx, step, s))
}

// measureTurn adds to a state what time has made of the current turn.
func (c *Controller) measureTurn(name string, s *state) {
	now := c.Clock.Now()
	s.turn = measure(s.record, c.turns.look(name, s.record, now), now, c.StalledAfter)
}

// leftAlone says whether an exempt namespace may be left alone. One that was closed, got a
// record, or was reported as ready, before it was exempt has to be brought to its end.
func leftAlone(s state) bool {
	return s.record == nil && (s.namespace == nil || !helper.IsClosed(s.namespace) &&
		(s.namespace.DeletionTimestamp == nil || !isSecured(s.namespace)) &&
		(!mayWithdrawReady(s.namespace) || !reportedReady(s.namespace)))
}

// reportedReady says whether it was nsinit that last wrote the condition Ready of a
// namespace.
func reportedReady(namespace *corev1.Namespace) bool {
	ready := utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && slices.Contains([]string{v1alpha1.ReasonInitialized, v1alpha1.ReasonAdopted, v1alpha1.ReasonOpenedByHand}, ready.Reason)
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
	if err != nil && !utilapierrors.IsAbsent(err) {
		return s, fmt.Errorf("cannot read the record: %w", err)
	}
	if err == nil {
		s.record = lifecycle
	}
	// gofail: var lifecycleBetweenLiveReads struct{}
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !utilapierrors.IsAbsent(err) {
		return s, fmt.Errorf("cannot read the namespace: %w", err)
	}
	if err == nil {
		s.namespace = namespace
	}
	return s, nil
}
