/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
)

// Report returns what RollOut would do with objects, for a namespace with an inventory.
func (p *Populator) Report(ctx context.Context, reporter *population.Applier, namespace *corev1.Namespace, objects []population.Object, inventory []v1alpha1.PopulatedObject) (
	[]population.Result, error,
) {
	populations, err := p.populations.Do(ctx)
	if err != nil {
		return nil, err
	}
	return reporter.Report(ctx, namespace, objects, population.Existing(inventory, population.Keys(populations)))
}

// RollOut gives a namespace that exists already the objects of a population that it does not have. It returns the outcome
// of each manifest. Like Populate, it adds an object to the inventory before it applies the object. An error means that
// the inventory could not be read or written, or that an object is to be tried again soon. The inventory has the reason.
func (p *Populator) RollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error) {
	populations, err := p.populations.Do(ctx)
	if err != nil {
		return nil, err
	}
	inventory, err := p.inventory(ctx, namespace)
	if err != nil {
		return nil, err
	}
	wanted := population.Render([]*population.Population{of}, namespace)
	tasks := planRollout(inventory.Status.Objects, wanted)
	announced, err := p.announce(ctx, inventory, tasks)
	if err != nil {
		return nil, err
	}
	existing := population.Existing(inventory.Status.Objects, population.Keys(populations))
	var objects []v1alpha1.PopulatedObject
	var temporary error
	for _, task := range tasks {
		var entry v1alpha1.PopulatedObject
		if task.action == adopt {
			if entry, err = p.adopt(ctx, namespace, task, existing); err != nil {
				temporary = err
			}
		} else {
			entry, _ = p.do(ctx, namespace, task)
		}
		objects = append(objects, entry)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // it is no outcome that the process ends
	}
	if err := p.conclude(ctx, announced, objects); err != nil {
		return nil, err
	}
	if temporary != nil {
		return nil, temporary
	}
	results := make([]population.Result, 0, len(wanted))
	for _, object := range wanted {
		results = append(results, resultOf(object, objects))
	}
	return results, nil
}

// adopt adopts an object. It returns the new entry, or an error if it is to be tried again: this is no outcome.
func (p *Populator) adopt(ctx context.Context, namespace *corev1.Namespace, t task, existing []v1alpha1.PopulatedObject) (v1alpha1.PopulatedObject, error) {
	if t.object.DriftPolicy == v1alpha1.DriftRepair {
		p.follow(t.object.Content.GroupVersionKind())
	}
	entry := t.entry
	adopted, outcome, err := p.applier.Adopt(ctx, namespace, t.object.Content, existing)
	if err == nil {
		p.applied(&entry, adopted)
		return entry, nil
	}
	entry.Message = strings.TrimSpace(err.Error())
	switch {
	case population.IsTemporary(err):
		entry.State = v1alpha1.PopulatedObjectPending
		return entry, err
	case outcome == population.Conflict:
		entry.State = v1alpha1.PopulatedObjectConflict
	default:
		entry.State = v1alpha1.PopulatedObjectFailed
	}
	return entry, nil
}

// resultOf returns the outcome of a manifest from the inventory.
func resultOf(object population.Object, inventory []v1alpha1.PopulatedObject) population.Result {
	result := population.Result{Key: object.Key, Outcome: population.Unchanged}
	if object.Wanted().IsIn(inventory) {
		return result
	}
	for _, entry := range inventory {
		if keyOf(entry) == object.Key && entry.UID == "" {
			return population.ResultOf(entry)
		}
	}
	return result
}
