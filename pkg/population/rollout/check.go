/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package rollout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// tallies returns the outcomes in each namespace that a population selects or in which it has obsolete objects, sorted by name,
// and whether the exemptions are known.
func (c *Controller) tallies(r *rollout, p *v1alpha1.NamespacePopulation) ([]tally, bool) {
	var tallies []tally
	views := map[types.UID]*view{}
	for _, source := range c.Namespaces.List() {
		exempt, known := c.Exemptions.Has(source.Name, source.GenerateName)
		if !known {
			return nil, false
		}
		if exempt || !population.IsOpen(source) {
			continue
		}
		inventory := c.inventory(source)
		selected := r.compiled.Selects(namespaceOf(source))
		if !selected && len(r.compiled.Obsolete(nil, inventory)) == 0 {
			continue
		}
		v := r.views[source.UID]
		if v == nil || v.source != source {
			v = r.renew(v, source)
		}
		views[source.UID] = v
		// The cache can still have an inventory with objects that were deleted meanwhile.
		if t := v.count(inventory, p.Spec.Rollout == v1alpha1.RolloutApply); selected || t.obsolete > 0 {
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
		v.source = source
	}
	return v
}

// inventory returns the inventory of a namespace.
func (c *Controller) inventory(source *metav1.PartialObjectMetadata) []v1alpha1.PopulatedObject {
	inventory, err := c.inventories.Get(source.Name)
	if err != nil || inventory.Spec.NamespaceUID != source.UID {
		return nil
	}
	return inventory.Status.Objects
}

// check reports on namespaces, or gives them their objects. An error of one namespace does not delay the others. If all of them
// have one, the cause is probably not in the namespaces, and check returns the first.
func (c *Controller) check(ctx context.Context, r *rollout, batch []tally, apply bool) error {
	check := c.report
	if apply {
		check = c.rollOut
	}
	errs := make([]error, len(batch))
	var group sync.WaitGroup
	for i, t := range batch {
		group.Go(func() {
			var results []population.Result
			results, errs[i] = check(ctx, r, t.view.source)
			t.view.set(results, errs[i], c.Clock.Now())
		})
	}
	group.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return fmt.Errorf("namespace %s: %w", batch[0].view.source.Name, errs[0])
}

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
	results, err := c.report(ctx, r, waiting[rand.IntN(len(waiting))].view.source)
	if err == nil && !slices.ContainsFunc(results, func(result population.Result) bool { return result.Outcome == population.Refused }) {
		r.limit = refusing + tooMany
	}
}

// report returns what rollOut would do.
func (c *Controller) report(ctx context.Context, r *rollout, source *metav1.PartialObjectMetadata) ([]population.Result, error) {
	return c.Report(ctx, namespaceOf(source), r.compiled, c.inventory(source))
}

// rollOut gives a namespace its objects if it still is as it was listed.
func (c *Controller) rollOut(ctx context.Context, r *rollout, source *metav1.PartialObjectMetadata) ([]population.Result, error) {
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if namespace.UID != source.UID || !population.IsOpen(namespace) || r.compiled.Selects(namespace) != r.compiled.Selects(namespaceOf(source)) {
		return nil, errors.New("it has changed since it was listed")
	}
	results, err := c.RollOut(ctx, namespace, r.compiled)
	if population.IsTemporary(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return nil, err // or the inventory was written or deleted meanwhile
	}
	if err != nil {
		for _, object := range population.Render([]*population.Population{r.compiled}, namespace) {
			results = append(results, population.Result{Key: object.Key, Outcome: population.Refused, Message: printable.Lines(err.Error())})
		}
	}
	return results, nil
}
