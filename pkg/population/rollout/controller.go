/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package rollout

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	informers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/pkg/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/util/workers"
)

const (
	// settle is how long a rollout waits for more changes of namespaces.
	settle = 500 * time.Millisecond
	// between is the least time between two updates of the status, except for the last one.
	between = time.Second
	// minRetry and maxRetry bound the delay after an error, of a namespace and of a rollout.
	minRetry = 200 * time.Millisecond
	maxRetry = time.Minute
	// patience is how long the namespaces and the list of exemptions can take to be read before the rollouts report that they
	// cannot be.
	patience = 10 * time.Second

	eventPaused   = "RolloutPaused"
	eventComplete = "RolloutComplete"
)

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
	Informers  informers.Interface
	Namespaces *population.Namespaces
	Exemptions Exemptions
	// Compile returns a population as compiled.
	Compile func(*v1alpha1.NamespacePopulation) (*population.Population, error)
	// Report returns what RollOut would do in a namespace with an inventory.
	Report func(ctx context.Context, namespace *corev1.Namespace, of *population.Population, inventory []v1alpha1.PopulatedObject) ([]population.Result, error)
	// RollOut brings a namespace what changed in a population.
	RollOut func(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error)
	Events  record.EventRecorder
	Clock   clock.Clock
}

// Controller rolls populations out.
type Controller struct {
	Config
	queue       workers.Queue
	populations listers.NamespacePopulationLister
	inventories listers.PopulatedNamespaceLister
	synced      []cache.InformerSynced
	// rollouts are those of the populations with scope All, by name. Only the worker uses them.
	rollouts map[string]*rollout
}

// rollout is what is known about one version of a population.
type rollout struct {
	uid        types.UID
	generation int64
	compiled   *population.Population
	views      map[types.UID]*view
	written    time.Time
	// labels and annotations are those of the population, and asked is when they changed: problems are then checked again.
	labels, annotations map[string]string
	asked               time.Time
	// limit is the number of namespaces that refuse objects at which the rollout pauses, and probed when another one was probed.
	limit  int
	probed time.Time
}

// New returns a Controller that is not running yet.
func New(config Config) (*Controller, error) {
	c := &Controller{Config: config, rollouts: map[string]*rollout{},
		queue:       workers.NewQueue("population-rollout", clock.RealClock{}, minRetry, maxRetry),
		populations: config.Informers.NamespacePopulations().Lister(), inventories: config.Informers.PopulatedNamespaces().Lister(),
	}
	registration, err := config.Informers.NamespacePopulations().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue,
		UpdateFunc: func(oldObj, newObj any) {
			before, ok := oldObj.(*v1alpha1.NamespacePopulation)
			after, stillOK := newObj.(*v1alpha1.NamespacePopulation)
			if ok && stillOK && (before.Generation != after.Generation || before.UID != after.UID || !sameMetadata(before, after.Labels, after.Annotations) ||
				!readySince(before).Equal(readySince(after))) {
				c.enqueue(newObj)
			}
		},
		DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, err
	}
	c.synced = []cache.InformerSynced{registration.HasSynced, config.Informers.PopulatedNamespaces().Informer().HasSynced}
	config.Exemptions.OnChange(c.namespacesChanged)
	return c, config.Namespaces.OnChange(c.namespacesChanged)
}

// Run runs until the context ends. The informers must be running.
func (c *Controller) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "rollout-controller"))
	defer c.queue.ShutDown()
	if cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		c.awaitCluster(ctx)
		workers.Run(ctx, c.queue, 1, c.sync)
	}
}

// awaitCluster waits for the namespaces and the list of exemptions. If they cannot be read, such as without permission, each
// rollout reports so, and continues when they change.
func (c *Controller) awaitCluster(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), c.Namespaces.HasSynced, c.Exemptions.HasSynced)
}

func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

// namespacesChanged queues every population with scope All.
func (c *Controller) namespacesChanged() {
	all, err := c.populations.List(labels.Everything())
	if err != nil {
		return // a lister returns no error
	}
	for _, p := range all {
		if p.Spec.Scope == v1alpha1.ScopeAll {
			c.queue.AddAfter(p.Name, settle)
		}
	}
}

// sync checks a few namespaces for a population and queues it again if there are more.
func (c *Controller) sync(ctx context.Context, name string) error {
	p, err := c.populations.Get(name)
	if apierrors.IsNotFound(err) || err == nil && p.Spec.Scope != v1alpha1.ScopeAll {
		delete(c.rollouts, name)
		return c.clear(ctx, p)
	}
	if err != nil {
		return err
	}
	r, err := c.rollout(p)
	if err != nil { // until the population changes
		return c.write(ctx, p, nil, invalid(p, err))
	}
	if !c.Namespaces.HasSynced() {
		return c.write(ctx, p, nil, namespacesUnknown(p))
	}
	tallies, known := c.tallies(r, p)
	if !known {
		return c.write(ctx, p, nil, exemptionsUnknown(p))
	}
	apply := p.Spec.Rollout == v1alpha1.RolloutApply
	if apply {
		c.probe(ctx, r, tallies)
	}
	batch, wait := next(tallies, r.limit, apply, r.askedSince(p), c.Clock.Now())
	if len(batch) == 0 || c.Clock.Since(r.written) >= between {
		status := statusOf(p.Generation, tallies)
		condition := conditionOf(p, status, tallies, r.limit)
		condition.Message += failing(tallies, c.Clock.Now())
		if err := c.write(ctx, p, status, condition); err != nil {
			return err
		}
		r.written = c.Clock.Now()
	}
	if len(batch) == 0 {
		c.queue.AddAfter(name, wait)
		return nil
	}
	if err := c.check(ctx, r, batch, apply); err != nil {
		return err
	}
	c.queue.Add(name)
	return nil
}

// rollout returns what is known about a population.
func (c *Controller) rollout(p *v1alpha1.NamespacePopulation) (*rollout, error) {
	r := c.rollouts[p.Name]
	if r != nil && r.uid == p.UID && r.generation == p.Generation {
		if !sameMetadata(p, r.labels, r.annotations) {
			r.labels, r.annotations, r.asked = p.Labels, p.Annotations, c.Clock.Now()
		}
		return r, nil
	}
	compiled, err := c.Compile(p)
	if err != nil {
		delete(c.rollouts, p.Name)
		return nil, err
	}
	r = &rollout{uid: p.UID, generation: p.Generation, compiled: compiled, views: map[types.UID]*view{}, limit: tooMany,
		labels: p.Labels, annotations: p.Annotations}
	c.rollouts[p.Name] = r
	return r, nil
}

// sameMetadata reports whether a population has the given labels and annotations.
func sameMetadata(p *v1alpha1.NamespacePopulation, labels, annotations map[string]string) bool {
	return maps.Equal(p.Labels, labels) && maps.Equal(p.Annotations, annotations)
}

// askedSince returns when an administrator last changed what problems can depend on, or the labels or annotations of the population.
func (r *rollout) askedSince(p *v1alpha1.NamespacePopulation) time.Time {
	if ready := readySince(p); ready.After(r.asked) {
		return ready
	}
	return r.asked
}

// clear removes the state of a rollout from a population, if there is one.
func (c *Controller) clear(ctx context.Context, p *v1alpha1.NamespacePopulation) error {
	if p == nil || p.Status.Rollout == nil && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut) == nil {
		return nil
	}
	return population.UpdateStatus(ctx, c.Nsinit, p, func(status *v1alpha1.NamespacePopulationStatus) {
		status.Rollout = nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRolledOut)
	})
}

// write writes the state of a rollout, and records an event when the rollout pauses or completes.
func (c *Controller) write(ctx context.Context, p *v1alpha1.NamespacePopulation, status *v1alpha1.PopulationRolloutStatus, condition metav1.Condition) error {
	former := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	if err := population.UpdateStatus(ctx, c.Nsinit, p, func(s *v1alpha1.NamespacePopulationStatus) {
		s.Rollout = status
		meta.SetStatusCondition(&s.Conditions, condition)
	}); err != nil {
		return err
	}
	switch {
	case former != nil && former.Reason == condition.Reason:
	case condition.Reason == v1alpha1.ReasonRolloutPaused:
		c.Events.Event(p, corev1.EventTypeWarning, eventPaused, condition.Message)
	case condition.Reason == v1alpha1.ReasonRolloutComplete:
		c.Events.Event(p, corev1.EventTypeNormal, eventComplete, condition.Message)
	}
	return nil
}
