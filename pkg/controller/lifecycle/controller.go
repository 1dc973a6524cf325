/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	client "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	informers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	lifecycleinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// Name is the name of the controller in logs and metrics.
const Name = "lifecycle"

// maxRetryDelay bounds the delay after a failure. A namespace must not stay closed for long after
// the cause of the failure has ended.
const maxRetryDelay = 30 * time.Second

// cacheDelay is how long the caches may lack what a request has shown.
const cacheDelay = time.Second

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Nsinit     versioned.Interface
	Namespaces coreinformers.NamespaceInformer
	// Informers has the informer of NamespaceLifecycles, which New registers.
	Informers  informers.SharedInformerFactory
	Exemptions *exemptions.List
	Events     record.EventRecorder
	Metrics    *Metrics
	Clock      clock.WithTicker
	// Required are the objects that a namespace needs before it opens, and RequiredTimeout bounds the wait for one that appears in no
	// namespace.
	Required        []RequiredObject
	RequiredTimeout time.Duration
	Metadata        metadata.Interface
	// Mapper finds the versions and the kinds of required objects.
	Mapper meta.RESTMapper
	// StalledAfter is how long a turn or a cleanup may last before it is reported as stalled. 0 disables the report.
	StalledAfter time.Duration
}

// Controller drives each namespace through its lifecycle.
type Controller struct {
	Dependencies
	// Lifecycles is the informer that New registered.
	Lifecycles lifecycleinformers.NamespaceLifecycleInformer

	client     client.NamespaceLifecycleInterface
	namespaces corelisters.NamespaceLister
	lifecycles listers.NamespaceLifecycleLister
	synced     []cache.InformerSynced
	// filled says whether the cache of lifecycles was filled once.
	filled cache.InformerSynced
	queue  workers.Queue

	// required watch the required objects.
	required []*objectWatch
	turns    turns
	listing  listing
}

// New returns a controller that is not running yet. It registers handlers with the
// informers, which must be started afterwards.
func New(d Dependencies) (*Controller, error) {
	c := &Controller{
		Dependencies: d,
		Lifecycles:   d.Informers.Nsinit().V1alpha1().NamespaceLifecycles(),
		client:       d.Nsinit.NsinitV1alpha1().NamespaceLifecycles(),
		namespaces:   d.Namespaces.Lister(),
		turns:        turns{seen: map[string]sightings{}},
	}
	c.queue = workers.NewFairQueue(Name, d.Clock, 20*time.Millisecond, maxRetryDelay, c.creator)
	d.Informers.InformerFor(&v1alpha1.NamespaceLifecycle{}, c.newInformer)
	c.lifecycles = c.Lifecycles.Lister()
	namespaces, err := cache.NewTypedSharedIndexInformer[*corev1.Namespace](d.Namespaces.Informer()).AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(namespace *corev1.Namespace) { c.queue.Add(namespace.Name) },
		UpdateFunc: c.namespaceUpdated,
		DeleteFunc: func(namespace coreinformers.DeletedNamespace) { c.queue.Add(namespace.GetName()) },
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch namespaces: %w", err)
	}
	typed := cache.NewTypedSharedIndexInformer[*v1alpha1.NamespaceLifecycle](c.Lifecycles.Informer())
	lifecycles, err := typed.AddTypedEventHandler(lifecycleinformers.NamespaceLifecycleDetailedHandlerFuncs{
		AddFunc:    c.lifecycleAdded,
		UpdateFunc: c.lifecycleUpdated,
		DeleteFunc: c.lifecycleDeleted,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch NamespaceLifecycles: %w", err)
	}
	c.synced = []cache.InformerSynced{namespaces.HasSynced, d.Exemptions.HasSynced}
	c.filled = lifecycles.HasSynced
	d.Exemptions.OnChange(c.enqueueAll)
	for _, object := range d.Required {
		required := &objectWatch{RequiredObject: object, client: d.Metadata, mapper: d.Mapper, clock: d.Clock, changed: c.objectChanged, counts: c.objectCounts}
		if err := required.prepare(); err != nil {
			return nil, err
		}
		c.required = append(c.required, required)
	}
	return c, nil
}

// creator returns the user for whom a namespace was created, or nothing if it is not known.
func (c *Controller) creator(name string) string {
	namespace, err := c.namespaces.Get(name)
	if err != nil {
		return ""
	}
	return helper.Creator(namespace)
}

// enqueueAll adds every name. A lifecycle can outlive its namespace.
func (c *Controller) enqueueAll() {
	for _, informer := range []cache.SharedIndexInformer{c.Namespaces.Informer(), c.Lifecycles.Informer()} {
		for _, key := range informer.GetStore().ListKeys() {
			c.queue.Add(key)
		}
	}
}

// lifecycleAdded records no events for the initial list: the former leader has recorded them.
func (c *Controller) lifecycleAdded(lifecycle *v1alpha1.NamespaceLifecycle, isInInitialList bool) {
	if isInInitialList {
		c.turns.firstSeen(lifecycle.Name, lifecycle, helper.Acting(lifecycle), c.Clock.Now())
		c.turns.announce(lifecycle, helper.Acting(lifecycle))
	} else {
		c.recordEvents(nil, lifecycle)
	}
	c.queue.Add(lifecycle.Name)
}

func (c *Controller) lifecycleUpdated(oldLifecycle, newLifecycle *v1alpha1.NamespaceLifecycle) {
	c.recordEvents(oldLifecycle, newLifecycle)
	for _, entry := range ended(oldLifecycle, newLifecycle) {
		c.Metrics.turns.WithLabelValues(entry.Name, string(entry.State)).Observe(entry.EndTime.Sub(entry.StartTime.Time).Seconds())
	}
	c.observeCleanups(oldLifecycle, newLifecycle)
	c.queue.Add(newLifecycle.Name)
}

// lifecycleDeleted measures the last participants: the write that removes them also removes the lifecycle.
func (c *Controller) lifecycleDeleted(deleted lifecycleinformers.DeletedNamespaceLifecycle) {
	if deleted.FinalStateUnknown == nil {
		c.observeCleanups(deleted.OptionalObj, &v1alpha1.NamespaceLifecycle{ObjectMeta: deleted.OptionalObj.ObjectMeta})
	}
	c.queue.Add(deleted.GetName())
}

// observeCleanups measures the participants that have cleaned up between two versions of a lifecycle.
func (c *Controller) observeCleanups(before, after *v1alpha1.NamespaceLifecycle) {
	for _, name := range helper.Participants(before) {
		if after.DeletionTimestamp != nil && before.UID == after.UID && !slices.Contains(helper.Participants(after), name) {
			c.Metrics.cleanups.WithLabelValues(name).Observe(c.Clock.Since(after.DeletionTimestamp.Time).Seconds())
		}
	}
}

func (c *Controller) namespaceUpdated(oldNamespace, newNamespace *corev1.Namespace) {
	if !onlyFailureReported(oldNamespace, newNamespace) {
		c.queue.Add(newNamespace.Name)
	}
}

// onlyFailureReported says whether an update only reports that the last step failed. Such an update
// must not cause a retry, which is due after a delay. The server may word each refusal
// differently, so that each retry would cause a report and each report a retry.
func onlyFailureReported(oldNamespace, newNamespace *corev1.Namespace) bool {
	if oldNamespace.ResourceVersion == newNamespace.ResourceVersion || !slices.ContainsFunc(newNamespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionInitializing && c.Reason == v1alpha1.ReasonNoLifecycle ||
			c.Type == v1alpha1.ConditionFailing && c.Status == corev1.ConditionTrue
	}) {
		return false
	}
	oldNamespace, newNamespace = oldNamespace.DeepCopy(), newNamespace.DeepCopy()
	for _, namespace := range []*corev1.Namespace{oldNamespace, newNamespace} {
		namespace.ResourceVersion, namespace.ManagedFields, namespace.Status.Conditions = "", nil, nil
	}
	return equality.Semantic.DeepEqual(oldNamespace, newNamespace)
}

// Run reconciles at most count names at a time until the context ends. It returns when every
// worker has stopped.
func (c *Controller) Run(ctx context.Context, count int) error {
	logger := klog.LoggerWithName(klog.FromContext(ctx), Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, required := range c.required {
		watching.Go(func() { required.run(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return errors.New("stopped before the caches were filled")
	}
	if err := c.settle(ctx); err != nil {
		return fmt.Errorf("stopped before NamespaceLifecycles were listed: %w", err)
	}
	logger.Info("Caches are filled", "workers", count)
	workers.Run(ctx, c.queue, count, c.handle)
	return nil
}

// handle reconciles a name, and counts failures. A conflict is not a failure.
func (c *Controller) handle(ctx context.Context, name string) error {
	if name == listKey {
		c.checkList(ctx)
		return nil
	}
	frozenErr := c.reportFrozen(ctx, name)
	step, err := c.reconcile(ctx, name)
	if isOutage(err) {
		c.turns.interrupt(c.Clock.Now())
	}
	if err != nil && !apierrors.IsConflict(err) && !errors.Is(err, errExists) {
		c.Metrics.failures.Inc()
	}
	c.reportFailing(ctx, name, step, err)
	return errors.Join(err, frozenErr)
}

// isOutage says whether a request failed because a server does not work, and not because of what was requested.
func isOutage(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || apierrors.IsNotFound(err) && !utilapierrors.IsAbsent(err)
	}
	var transport *url.Error
	return errors.As(err, &transport)
}

// reconcile takes the next step for a name, and returns it with its error. The caches only suggest a step. Most steps are taken only if live
// reads of both objects lead to the same step.
func (c *Controller) reconcile(ctx context.Context, name string) (step action, err error) {
	s := c.cached(name)
	exempt, known := c.exempt(name, s)
	if !known {
		return "", nil // every name is re-queued when the list of exemptions exists
	}
	if s.unlisted = c.listing.current(); s.unlisted != nil {
		if !isWaiting(s.namespace) {
			return "", nil // every name is re-queued when lifecycles can be listed
		}
		if step := next(s); step != createLifecycle && step != withdrawReady {
			if err := c.readLifecycle(ctx, name, &s); err != nil {
				return "", err
			}
		}
	}
	if exempt && leftAlone(s) {
		return "", nil
	}
	c.measure(ctx, name, &s)
	step = next(s)
	switch {
	case step == nothing:
		if s.timers.wake > 0 {
			c.queue.AddAfter(name, s.timers.wake)
		}
		c.announce(s)
		return "", c.report(ctx, s)
	case step == createLifecycle, step == withdrawReady, step == openGate && len(missingFinalizers(s)) == 0:
		// No live read is needed. The server reads the namespace live before it creates a lifecycle. A deletion is final, and so
		// is the end of an initialization: the server accepts no change of an empty list. The writes that withdraw Ready and
		// open the gate fail if the namespace changed since. The write that adds finalizers needs the whole namespace.
		if err := c.take(ctx, step, s); !errors.Is(err, errExists) {
			return step, err
		}
	}
	// gofail: var lifecycleBeforeLiveRead struct{}
	if err := c.readLifecycle(ctx, name, &s); err != nil {
		return "", err
	}
	// The lifecycle belongs to the namespace that is read after it, or to a former namespace, which its UID shows.
	// gofail: var lifecycleBetweenLiveReads struct{}
	if err := c.readNamespace(ctx, name, &s); err != nil {
		return "", err
	}
	c.measure(ctx, name, &s)
	if now := next(s); now != step {
		// The cache is behind. What happens before it catches up may never be an event, such as the
		// removal of a lifecycle that the cache never showed.
		if s.unlisted == nil { // checkList re-queues it otherwise
			c.queue.AddAfter(name, cacheDelay)
		}
		step = now
	}
	klog.FromContext(ctx).V(2).Info("Next step", "action", step)
	return step, c.take(ctx, step, s)
}

// exempt says whether a namespace is exempt by its name, as far as the ConfigMap was read.
func (c *Controller) exempt(name string, s state) (exempt, known bool) {
	generateName := ""
	if s.namespace != nil {
		generateName = s.namespace.GenerateName
	}
	return c.Exemptions.Has(name, generateName)
}

// leftAlone says whether an exempt namespace needs no action. A namespace that was closed, got a
// lifecycle, or was reported as ready before it became exempt needs the remaining steps.
func leftAlone(s state) bool {
	return s.lifecycle == nil && (s.namespace == nil || !helper.IsClosed(s.namespace) &&
		(s.namespace.DeletionTimestamp == nil || !isSecured(s.namespace) && !keepsContent(s.namespace)) &&
		(!mayWithdrawReady(s.namespace) || !reportedReady(s.namespace)))
}

// reportedReady says whether nsinit wrote the current condition Ready of a namespace.
func reportedReady(namespace *corev1.Namespace) bool {
	ready := utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && slices.Contains([]string{v1alpha1.ReasonInitialized, v1alpha1.ReasonObjectsMissing, v1alpha1.ReasonAdopted, v1alpha1.ReasonOpenedByHand}, ready.Reason)
}

// cached reads both objects from the caches, which return no error but not found.
func (c *Controller) cached(name string) (s state) {
	s.namespace, _ = c.namespaces.Get(name)
	s.lifecycle, _ = c.lifecycles.Get(name)
	return s
}

// readLifecycle reads the lifecycle live into a state.
func (c *Controller) readLifecycle(ctx context.Context, name string, s *state) error {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lifecycle, err := c.client.Get(reading, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
		lifecycle = nil
	case err != nil && s.unlisted != nil:
		return c.reportUnreadable(ctx, *s, err)
	case err != nil:
		return fmt.Errorf("cannot read the NamespaceLifecycle: %w", err)
	}
	s.lifecycle = lifecycle
	return nil
}

// readNamespace reads the namespace live into a state.
func (c *Controller) readNamespace(ctx context.Context, name string, s *state) error {
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
		namespace = nil
	case err != nil:
		return fmt.Errorf("cannot read the namespace: %w", err)
	}
	s.namespace = namespace
	return nil
}
