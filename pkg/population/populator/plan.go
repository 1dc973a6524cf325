/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
)

// action is what is done with one object.
type action int

const (
	keep action = iota
	// apply applies the manifest.
	apply
	// adopt applies the manifest if the object belongs to no other client. Only a rollout does it.
	adopt
	// report reports that the manifest could not be rendered.
	report
	// prune deletes an object without a manifest.
	prune
)

// task is an action for one object, with its entry in the inventory.
type task struct {
	action action
	entry  v1alpha1.PopulatedObject
	// object is the rendered manifest, unless the object is pruned or kept.
	object population.Object
}

// plan returns the tasks for a namespace, in order. In a closed namespace, every manifest is applied; in an open one,
// those whose drift is repaired. What changed in a population with scope All is left to the rollout, see leaveToRollout.
func plan(known []v1alpha1.PopulatedObject, wanted []population.Object, manifests map[population.Key]struct{}, closed bool) []task {
	before := byManifest(known)
	var tasks, obsolete []task
	for i, object := range wanted {
		entries := before[object.Key]
		delete(before, object.Key)
		if !closed && object.DriftPolicy != v1alpha1.DriftRepair {
			tasks = append(tasks, tasksFor(keep, ignored(entries))...)
			continue
		}
		if !closed && (isSuperseded(object, wanted[i+1:], known) || object.Scope == v1alpha1.ScopeAll && object.Wanted().Current(entries) == nil) {
			tasks = append(tasks, tasksFor(keep, entries)...)
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
	for _, entry := range known {
		entries := before[keyOf(entry)]
		delete(before, keyOf(entry))
		// If the manifest exists, the labels of the namespace changed. Tenants may rely on the objects.
		if _, exists := manifests[keyOf(entry)]; exists {
			tasks = append(tasks, tasksFor(keep, slices.DeleteFunc(entries, population.IsOfOther))...)
		} else {
			obsolete = append(obsolete, pruned(entries)...)
		}
	}
	return append(tasks, settled(obsolete, tasks, wanted)...)
}

// ignored removes the hashes of objects whose drift is not repaired any more: tenants may change them, so they are rolled out
// again if their drift is to be repaired later.
func ignored(entries []v1alpha1.PopulatedObject) []v1alpha1.PopulatedObject {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].ContentHash = ""
	}
	return entries
}

// leaveToRollout keeps the objects of an open namespace that a rollout is to delete.
func leaveToRollout(tasks []task, populations []*population.Population) {
	for i, t := range tasks {
		if t.action == prune && slices.ContainsFunc(populations, func(p *population.Population) bool {
			return p.Name == t.entry.Population && p.Scope == v1alpha1.ScopeAll
		}) {
			tasks[i].action = keep
		}
	}
}

// isSuperseded reports whether a later manifest of the same object was applied, or is about to be. To repair both would
// change the object each time, and each change would start the next repair.
func isSuperseded(object population.Object, later []population.Object, known []v1alpha1.PopulatedObject) bool {
	return slices.ContainsFunc(later, func(l population.Object) bool {
		return l.Content != nil && l.Wanted().Identity == object.Wanted().Identity &&
			(l.Wanted().IsIn(known) || l.DriftPolicy == v1alpha1.DriftRepair && l.Scope != v1alpha1.ScopeAll)
	})
}

// planRollout returns the tasks to bring a namespace that exists already what changed in a population: objects that it does
// not have, changes of those whose drift is repaired, and last the deletions. wanted are the objects of every population.
func planRollout(of *population.Population, known []v1alpha1.PopulatedObject, wanted []population.Object) []task {
	before := byManifest(known)
	var tasks []task
	for i, object := range wanted {
		if object.Population != of.Name {
			continue
		}
		entries, w := before[object.Key], object.Wanted()
		delete(before, object.Key)
		switch {
		case w.Current(entries) != nil:
			tasks = append(tasks, tasksFor(keep, entries)...)
		case object.Err != nil:
			tasks = append(tasks, reported(object, entries)...)
		default:
			current, others := split(object, entries)
			action := adopt
			if w.IsIn(entries) {
				action = apply
			}
			if action == apply && isSuperseded(object, wanted[i+1:], known) {
				action, current.ContentHash = keep, object.Hash
			}
			tasks = append(tasks, task{action, current, object})
			tasks = append(tasks, tasksFor(keep, others)...)
		}
	}
	for _, entry := range known {
		if _, left := before[keyOf(entry)]; left {
			tasks = append(tasks, task{action: keep, entry: entry})
		}
	}
	return deletedLast(tasks, of.Deletions(wanted, known))
}

// deletedLast replaces the tasks of objects that a rollout deletes, and puts them at the end.
func deletedLast(tasks []task, deletions []population.Result) []task {
	var first, last []task
	for _, t := range tasks {
		if slices.ContainsFunc(deletions, func(d population.Result) bool {
			return t.action == keep && d.Outcome == population.Deleted && d.Key == keyOf(t.entry) && d.Deletes == population.IdentityOf(t.entry)
		}) {
			last = append(last, task{action: prune, entry: t.entry})
		} else {
			first = append(first, t)
		}
	}
	return append(first, last...)
}

// byManifest returns the entries of each manifest.
func byManifest(known []v1alpha1.PopulatedObject) map[population.Key][]v1alpha1.PopulatedObject {
	entries := map[population.Key][]v1alpha1.PopulatedObject{}
	for _, entry := range known {
		entries[keyOf(entry)] = append(entries[keyOf(entry)], entry)
	}
	return entries
}

func keyOf(entry v1alpha1.PopulatedObject) population.Key {
	return population.Key{Population: entry.Population, Manifest: entry.Manifest}
}

// tasksFor returns the same task for each entry.
func tasksFor(action action, entries []v1alpha1.PopulatedObject) []task {
	var tasks []task
	for _, entry := range entries {
		tasks = append(tasks, task{action: action, entry: entry})
	}
	return tasks
}

// reported keeps the entries, and reports the error in the first one.
func reported(object population.Object, entries []v1alpha1.PopulatedObject) []task {
	first := v1alpha1.PopulatedObject{Population: object.Population, Manifest: object.Manifest, PrunePolicy: object.PrunePolicy}
	if len(entries) > 0 {
		first, entries = entries[0], entries[1:]
	}
	return append([]task{{report, first, object}}, tasksFor(keep, entries)...)
}

// split returns the entry of an object, and those of former objects of its manifest.
func split(object population.Object, entries []v1alpha1.PopulatedObject) (v1alpha1.PopulatedObject, []v1alpha1.PopulatedObject) {
	current := v1alpha1.PopulatedObject{
		Population: object.Population, Manifest: object.Manifest, PrunePolicy: object.PrunePolicy, State: v1alpha1.PopulatedObjectPending,
		APIVersion: object.Content.GetAPIVersion(), Kind: object.Content.GetKind(), Name: object.Content.GetName(),
	}
	var others []v1alpha1.PopulatedObject
	for _, entry := range entries {
		switch {
		case entry.Kind == "": // of a manifest that could not be rendered
		case population.IsOfOther(entry) && population.IdentityOf(entry) != population.IdentityOf(current): // of a former name
		case population.IdentityOf(entry) == population.IdentityOf(current):
			current.UID, current.State, current.Message, current.LastAppliedTime, current.ContentHash = entry.UID, entry.State, entry.Message, entry.LastAppliedTime, entry.ContentHash
		default:
			others = append(others, entry)
		}
	}
	return current, others
}

// pruned returns the tasks to delete objects whose PrunePolicy is Delete. Objects of other clients stay.
func pruned(entries []v1alpha1.PopulatedObject) []task {
	return tasksFor(prune, slices.DeleteFunc(slices.Clone(entries), func(entry v1alpha1.PopulatedObject) bool {
		return !population.IsPruned(entry)
	}))
}

// settled removes the obsolete objects that another manifest has now. It keeps those that another manifest is still to get,
// which the rollout gives it: the namespace must not lose them meanwhile.
func settled(obsolete, tasks []task, wanted []population.Object) []task {
	claimed, awaited := sets.New[population.Identity](), sets.New[population.Identity]()
	for _, t := range tasks {
		if t.action == keep && t.entry.UID == "" {
			awaited.Insert(population.IdentityOf(t.entry))
		} else {
			claimed.Insert(population.IdentityOf(t.entry))
		}
	}
	for _, object := range wanted {
		if object.Content != nil {
			awaited.Insert(object.Wanted().Identity)
		}
	}
	var left []task
	for _, t := range obsolete {
		switch identity := population.IdentityOf(t.entry); {
		case claimed.Has(identity):
		case awaited.Has(identity):
			left = append(left, task{action: keep, entry: t.entry})
		default:
			left = append(left, t)
		}
	}
	return left
}
