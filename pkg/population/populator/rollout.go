/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// Report returns what RollOut would do in a namespace with an inventory.
func (p *Populator) Report(ctx context.Context, reporter *population.Applier, namespace *corev1.Namespace, of *population.Population, inventory []v1alpha1.PopulatedObject) (
	[]population.Result, error,
) {
	populations, wanted, err := p.with(ctx, of, namespace)
	if err != nil {
		return nil, err
	}
	results, err := reporter.Report(ctx, namespace, population.Render([]*population.Population{of}, namespace), population.Existing(inventory, population.Keys(populations)))
	return append(results, of.Deletions(wanted, inventory)...), err
}

// with returns the populations, of which one is given, and their objects in a namespace.
func (p *Populator) with(ctx context.Context, of *population.Population, namespace *corev1.Namespace) ([]*population.Population, []population.Object, error) {
	populations, err := p.populations.Do(ctx)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(populations, func(other *population.Population) bool { return other.Name == of.Name })
	if i < 0 {
		return nil, nil, fmt.Errorf("NamespacePopulation %q was deleted meanwhile", of.Name)
	}
	populations = slices.Clone(populations)
	populations[i] = of
	return populations, population.Render(populations, namespace), nil
}

// RollOut brings a namespace that exists already what changed in a population. It returns the outcome of each manifest and
// deletion. Like Populate, it adds an object to the inventory before it applies the object. An error means that the inventory
// could not be read or written, or that an object is to be tried again soon. The inventory has the reason.
func (p *Populator) RollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error) {
	populations, wanted, err := p.with(ctx, of, namespace)
	if err != nil {
		return nil, err
	}
	inventory, err := p.inventory(ctx, namespace)
	if err != nil {
		return nil, err
	}
	tasks := planRollout(of, inventory.Status.Objects, wanted)
	announced, err := p.announce(ctx, inventory, tasks)
	if err != nil {
		return nil, err
	}
	objects, err := p.bring(ctx, namespace, tasks, population.Existing(inventory.Status.Objects, population.Keys(populations)))
	if ctx.Err() != nil {
		return nil, ctx.Err() // it is no outcome that the process ends
	}
	if err := p.conclude(ctx, announced, objects); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	var results []population.Result
	for _, object := range wanted {
		if object.Population == of.Name {
			results = append(results, resultOf(object, objects))
		}
	}
	for _, deletion := range of.Deletions(wanted, inventory.Status.Objects) {
		results = append(results, deleted(deletion, objects))
	}
	return results, nil
}

// bring runs the tasks of a rollout. It returns the new entries, and the last error that is temporary. An object stays while
// the one that its manifest follows now cannot be applied.
func (p *Populator) bring(ctx context.Context, namespace *corev1.Namespace, tasks []task, existing []v1alpha1.PopulatedObject) (objects []v1alpha1.PopulatedObject, temporary error) {
	failed := sets.New[population.Key]()
	for _, t := range tasks {
		if t.action == prune && failed.Has(keyOf(t.entry)) || errors.Is(temporary, population.ErrChanged) {
			t.action = keep
		}
		entry, remains, err := t.entry, true, error(nil)
		if t.action == apply || t.action == adopt || t.action == prune {
			err = p.applier.Await(ctx, namespace)
		}
		switch {
		case err != nil:
		case t.action == adopt:
			entry, err = p.adopt(ctx, namespace, t, existing)
		default:
			entry, remains, err = p.do(ctx, namespace, t)
		}
		if err != nil {
			failed.Insert(keyOf(t.entry))
		}
		if population.IsTemporary(err) {
			temporary = err
		}
		if remains {
			objects = append(objects, entry)
		}
	}
	return objects, temporary
}

// adopt adopts an object. It returns the new entry, and the error that it has.
func (p *Populator) adopt(ctx context.Context, namespace *corev1.Namespace, t task, existing []v1alpha1.PopulatedObject) (v1alpha1.PopulatedObject, error) {
	if t.object.DriftPolicy == v1alpha1.DriftRepair {
		p.follow(t.object.Content.GroupVersionKind())
	}
	stored, outcome, err := p.applier.Adopt(ctx, namespace, t.object.Content, existing)
	if err == nil {
		return p.applied(t, stored), nil
	}
	entry := t.entry
	entry.Message = strings.TrimSpace(printable.Lines(err.Error()))
	switch {
	case population.IsTemporary(err):
		entry.State = v1alpha1.PopulatedObjectPending
	case outcome == population.Conflict:
		entry.State = v1alpha1.PopulatedObjectConflict
	default:
		entry.State = v1alpha1.PopulatedObjectFailed
	}
	return entry, err
}

// resultOf returns the outcome of a manifest from the inventory.
func resultOf(object population.Object, inventory []v1alpha1.PopulatedObject) population.Result {
	w := object.Wanted()
	if w.Current(inventory) == nil {
		for _, entry := range inventory {
			if w.IsProblem(entry) {
				return population.ResultOf(entry)
			}
		}
	}
	return population.Result{Key: object.Key, Outcome: population.Unchanged}
}

// deleted returns the outcome of a deletion from the inventory after it.
func deleted(deletion population.Result, inventory []v1alpha1.PopulatedObject) population.Result {
	for _, entry := range inventory {
		if keyOf(entry) != deletion.Key || population.IdentityOf(entry) != deletion.Deletes {
			continue
		}
		deletion.Outcome = population.Unchanged
		if entry.State == v1alpha1.PopulatedObjectFailed {
			deletion.Outcome, deletion.Message = population.Refused, entry.Message
		}
	}
	return deletion
}
