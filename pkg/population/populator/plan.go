/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
)

// action is what is done with one object.
type action int

const (
	// keep leaves it as it is.
	keep action = iota
	// apply makes it what the manifest says.
	apply
	// report records that the manifest could not be rendered.
	report
	// prune deletes it, as its manifest is no more.
	prune
)

// task is one object, what was recorded of it, and what is done with it.
type task struct {
	action action
	entry  v1alpha1.PopulatedObject
	// object is what the manifest says, unless the object is pruned or kept.
	object population.Object
}

// plan says what to do, in order. While a namespace is closed, everything is applied;
// afterwards, what is to follow its manifest.
func plan(recorded []v1alpha1.PopulatedObject, wanted []population.Object, manifests map[population.Key]struct{}, closed bool) []task {
	before := map[population.Key][]v1alpha1.PopulatedObject{}
	for _, entry := range recorded {
		before[keyOf(entry)] = append(before[keyOf(entry)], entry)
	}
	var tasks, obsolete []task
	for _, object := range wanted {
		entries := before[object.Key]
		delete(before, object.Key)
		if !closed && object.DriftPolicy != v1alpha1.DriftRepair {
			tasks = append(tasks, kept(entries)...)
			continue
		}
		if object.Err != nil {
			tasks = append(tasks, reported(object, entries)...)
			continue
		}
		current, others := split(object, entries)
		tasks = append(tasks, task{apply, current, object})
		obsolete = append(obsolete, pruned(others)...)
	}
	for _, entry := range recorded {
		entries := before[keyOf(entry)]
		delete(before, keyOf(entry))
		// A manifest that does not concern the namespace any more, because its labels changed,
		// is no reason to delete what its tenants rely on.
		if _, exists := manifests[keyOf(entry)]; exists {
			tasks = append(tasks, kept(entries)...)
		} else {
			obsolete = append(obsolete, pruned(entries)...)
		}
	}
	return append(tasks, unclaimed(obsolete, tasks)...)
}

func keyOf(entry v1alpha1.PopulatedObject) population.Key {
	return population.Key{Population: entry.Population, Manifest: entry.Manifest}
}

func kept(entries []v1alpha1.PopulatedObject) []task {
	var tasks []task
	for _, entry := range entries {
		tasks = append(tasks, task{action: keep, entry: entry})
	}
	return tasks
}

// reported keeps what was recorded, of which the first entry tells the error.
func reported(object population.Object, entries []v1alpha1.PopulatedObject) []task {
	first := v1alpha1.PopulatedObject{Population: object.Population, Manifest: object.Manifest, PrunePolicy: object.PrunePolicy}
	if len(entries) > 0 {
		first, entries = entries[0], entries[1:]
	}
	return append([]task{{report, first, object}}, kept(entries)...)
}

// split returns the entry of an object, and those of objects that its manifest was before.
func split(object population.Object, entries []v1alpha1.PopulatedObject) (v1alpha1.PopulatedObject, []v1alpha1.PopulatedObject) {
	current := v1alpha1.PopulatedObject{
		Population: object.Population, Manifest: object.Manifest, PrunePolicy: object.PrunePolicy, State: v1alpha1.PopulatedObjectPending,
		APIVersion: object.Content.GetAPIVersion(), Kind: object.Content.GetKind(), Name: object.Content.GetName(),
	}
	var others []v1alpha1.PopulatedObject
	for _, entry := range entries {
		switch {
		case entry.Kind == "": // of a manifest that could not be rendered then
		case population.IdentityOf(entry) == population.IdentityOf(current):
			current.UID, current.State, current.Message, current.LastAppliedTime = entry.UID, entry.State, entry.Message, entry.LastAppliedTime
		default:
			others = append(others, entry)
		}
	}
	return current, others
}

// pruned deletes what may be deleted, and forgets the rest.
func pruned(entries []v1alpha1.PopulatedObject) []task {
	var tasks []task
	for _, entry := range entries {
		if entry.Kind != "" && entry.PrunePolicy == v1alpha1.PruneDelete {
			tasks = append(tasks, task{action: prune, entry: entry})
		}
	}
	return tasks
}

// unclaimed leaves out objects that another manifest holds now.
func unclaimed(obsolete, tasks []task) []task {
	claimed := map[population.Identity]struct{}{}
	for _, t := range tasks {
		claimed[population.IdentityOf(t.entry)] = struct{}{}
	}
	var rest []task
	for _, t := range obsolete {
		if _, another := claimed[population.IdentityOf(t.entry)]; !another {
			rest = append(rest, t)
		}
	}
	return rest
}
