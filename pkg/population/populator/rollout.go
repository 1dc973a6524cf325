/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
)

// RollOut gives a namespace that exists already the objects of a population that it does not have. It returns the outcome
// of each manifest. Like Populate, it adds an object to the inventory before it applies the object. An error means that
// the inventory could not be read or written.
func (p *Populator) RollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error) {
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
	var objects []v1alpha1.PopulatedObject
	for _, task := range tasks {
		entry, _ := p.do(ctx, namespace, task)
		objects = append(objects, entry)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // it is no outcome that the process ends
	}
	if err := p.conclude(ctx, announced, objects); err != nil {
		return nil, err
	}
	results := make([]population.Result, 0, len(wanted))
	for _, object := range wanted {
		results = append(results, resultOf(object, objects))
	}
	return results, nil
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
