/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// between is the least time between two updates of the status, except for the last one.
	between = time.Second
	// minRolloutRetry and maxRolloutRetry bound the delay after an error, of a namespace and of a rollout.
	minRolloutRetry = 200 * time.Millisecond
	maxRolloutRetry = time.Minute
	// patience is how long the namespaces and the list of exemptions can take to be read before the rollouts report that they
	// cannot be.
	patience = 10 * time.Second
)

// rollout is what is known about one version of a population.
type rollout struct {
	// population is the one that was last read.
	population *v1alpha1.NamespacePopulation
	compiled   *population.Population
	views      map[types.UID]*view
	written    time.Time
	// asked is when the labels or annotations of the population changed: problems are then checked again.
	asked time.Time
	// limit is the number of namespaces that refuse objects at which the rollout pauses, and probed when another one was probed.
	limit  int
	probed time.Time
}

// sync checks a few namespaces for a population and queues it again if there are more.
func (c *Controller) sync(ctx context.Context, name string) error {
	p, err := c.populations.Get(name)
	if apierrors.IsNotFound(err) || err == nil && p.Spec.Scope != v1alpha1.ScopeAll {
		delete(c.known, name)
		return nil
	}
	if err != nil {
		return err
	}
	r, err := c.rollout(p)
	if err != nil { // until the population changes
		c.reportRollout(p, nil, notRolledOut(p, population.ReasonInvalid, fmt.Sprintf("the population is not valid, so no namespace is changed: %v", err)))
		return nil
	}
	if !c.namespaces.HasSynced() {
		c.reportRollout(p, nil, notRolledOut(p, v1alpha1.ReasonRolloutNamespacesUnknown,
			"the namespaces cannot be listed, so none is changed: grant policy-population list and watch on namespaces, for example by applying artifacts/deploy again"))
		return nil
	}
	tallies, known := c.tallies(r)
	if !known {
		c.reportRollout(p, nil, notRolledOut(p, v1alpha1.ReasonRolloutExemptionsUnknown,
			"the ConfigMap with the list of exemptions cannot be read, so no namespace is changed: apply artifacts/deploy again"))
		return nil
	}
	apply := p.Spec.Rollout == v1alpha1.RolloutApply
	if apply {
		c.probe(ctx, r, tallies)
	}
	batch, wait := next(tallies, r.limit, apply, r.askedSince(), c.Clock.Now())
	if len(batch) == 0 || c.Clock.Since(r.written) >= between {
		status := statusOf(p.Generation, tallies)
		condition := conditionOf(p, status, tallies, r.limit)
		condition.Message += failing(tallies, c.Clock.Now())
		c.reportRollout(p, status, condition)
		r.written = c.Clock.Now()
	}
	if len(batch) == 0 {
		c.rollouts.AddAfter(name, wait)
		return nil
	}
	if err := c.check(ctx, r, batch, apply); err != nil {
		return err
	}
	c.rollouts.Add(name)
	return nil
}

// rollout returns what is known about a population.
func (c *Controller) rollout(p *v1alpha1.NamespacePopulation) (*rollout, error) {
	compiled, err := c.Populator.Compile(p)
	if err != nil {
		delete(c.known, p.Name)
		return nil, err
	}
	if r := c.known[p.Name]; r != nil && r.compiled == compiled {
		if !sameMetadata(r.population, p) {
			r.asked = c.Clock.Now()
		}
		r.population = p
		return r, nil
	}
	c.known[p.Name] = &rollout{population: p, compiled: compiled, views: map[types.UID]*view{}, limit: tooMany}
	return c.known[p.Name], nil
}

// sameMetadata reports whether two versions of a population have the same labels and annotations.
func sameMetadata(a, b *v1alpha1.NamespacePopulation) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// askedSince returns when an administrator last changed what problems can depend on, or the labels or annotations of the population.
func (r *rollout) askedSince() time.Time {
	if ready := readySince(r.population); ready.After(r.asked) {
		return ready
	}
	return r.asked
}

// tallies returns the outcomes in each namespace that a population selects or in which it has obsolete objects, sorted by name,
// and whether the exemptions are known.
func (c *Controller) tallies(r *rollout) ([]tally, bool) {
	var tallies []tally
	views := map[types.UID]*view{}
	for _, source := range c.listNamespaces() {
		exempt, known := c.Exemptions.Has(source.Name, source.GenerateName)
		if !known {
			return nil, false
		}
		if exempt || !population.IsOpen(source) {
			continue
		}
		inventory := c.inventory(source)
		selected := r.compiled.Selects(namespaceOf(source))
		isOfIt := func(entry v1alpha1.PopulatedObject) bool { return entry.Population == r.compiled.Name }
		if !selected && !slices.ContainsFunc(inventory.Status.Objects, isOfIt) {
			continue
		}
		v := r.views[source.UID]
		if v == nil || v.source != source {
			v = r.renew(v, source)
		}
		views[source.UID] = v
		if t := v.tally(inventory, r.population.Spec.Rollout == v1alpha1.RolloutApply); selected || t.obsolete > 0 {
			tallies = append(tallies, t)
		}
	}
	r.views = views
	return tallies, true
}

// renew renders a population for a changed namespace. The outcomes stay if the objects do.
func (r *rollout) renew(former *view, source *metav1.PartialObjectMetadata) *view {
	v := newView(r.compiled, source)
	if former != nil && former.digest == v.digest {
		*v = *former
		v.source, v.counted = source, nil
	}
	return v
}

// inventory returns the inventory of a namespace, or an empty one.
func (c *Controller) inventory(source *metav1.PartialObjectMetadata) *v1alpha1.PopulatedNamespace {
	inventory, err := c.inventories.Get(source.Name)
	if err != nil || inventory.Spec.NamespaceUID != source.UID {
		return &c.none
	}
	return inventory
}

// check reports on namespaces, or gives them their objects. It ends early when a rollout perhaps has to pause, because a namespace refuses
// an object, and when the status is to be written again. An error of one namespace does not delay the others. If several in a row have one,
// the cause is probably not in the namespaces: check ends early, too, and returns the first error if there are only errors.
func (c *Controller) check(ctx context.Context, r *rollout, batch []tally, apply bool) error {
	check := c.try
	if apply {
		check = c.rollOut
	}
	var mu sync.Mutex
	var failed error // the first one
	failures, succeeded, ended, began := 0, false, false, c.Clock.Now()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, t := range batch {
		group.Go(func() error {
			mu.Lock()
			skipped := ended || failures >= atOnce || c.Clock.Since(began) >= between
			mu.Unlock()
			if skipped {
				return nil
			}
			results, err := check(ctx, r, t.view.source)
			t.view.set(results, err, c.Clock.Now())
			mu.Lock()
			defer mu.Unlock()
			ended = ended || apply && slices.ContainsFunc(results, isRefused)
			if err == nil {
				failures, succeeded = 0, true
				return nil
			}
			if failures++; failed == nil {
				failed = fmt.Errorf("namespace %s: %w", t.view.source.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // failed is the error
	if succeeded {
		return nil
	}
	return failed
}

func isRefused(result population.Result) bool { return result.Outcome == population.Refused }

// probe tries a namespace that a paused rollout has not reached, with a dry run, at most once a minute. If it refuses nothing, the
// cause is in the namespaces that do, such as a full quota: the rollout continues until as many others refuse objects. The
// namespace is a random one, so that no tenant can choose the name that is tried.
func (c *Controller) probe(ctx context.Context, r *rollout, tallies []tally) {
	refusing := refusing(tallies)
	r.limit = min(r.limit, refusing+tooMany)
	reached := func(t tally) bool { return !t.isNew() }
	waiting := slices.DeleteFunc(slices.Clone(tallies), reached)
	if refusing < r.limit || len(waiting) == 0 || c.Clock.Since(r.probed) < retryRefused {
		return
	}
	r.probed = c.Clock.Now()
	results, err := c.try(ctx, r, waiting[rand.IntN(len(waiting))].view.source)
	if err == nil && !slices.ContainsFunc(results, isRefused) {
		r.limit = refusing + tooMany
	}
}

// try returns what rollOut would do.
func (c *Controller) try(ctx context.Context, r *rollout, source *metav1.PartialObjectMetadata) ([]population.Result, error) {
	return c.Populator.ReportRollOut(ctx, namespaceOf(source), r.compiled, c.inventory(source).Status.Objects)
}

// rollOut gives a namespace its objects if it still is as it was listed. Meanwhile, no worker repairs it: its inventory does not have the
// objects yet.
func (c *Controller) rollOut(ctx context.Context, r *rollout, source *metav1.PartialObjectMetadata) ([]population.Result, error) {
	await, cancel := context.WithTimeout(ctx, between)
	defer cancel()
	if err := c.begin(await, source.Name); err != nil {
		return nil, err
	}
	defer c.end(source.Name)
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	exempt, known := c.Exemptions.Has(namespace.Name, namespace.GenerateName)
	if exempt || !known || namespace.UID != source.UID || !population.IsOpen(namespace) || r.compiled.Selects(namespace) != r.compiled.Selects(namespaceOf(source)) {
		return nil, errors.New("it has changed since it was listed")
	}
	results, err := c.Populator.RollOut(ctx, namespace, r.compiled)
	if population.IsTemporary(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return nil, err // or the inventory was written or deleted meanwhile
	}
	if err != nil {
		for _, object := range population.Render([]*population.Population{r.compiled}, namespace) {
			results = append(results, population.Result{Target: population.Target{Key: object.Key}, Outcome: population.Refused, Message: printable.Lines(err.Error())})
		}
	}
	return results, nil
}
