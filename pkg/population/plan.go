/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Mode is why a namespace gets objects.
type Mode int

const (
	// Initialize applies every manifest to a closed namespace.
	Initialize Mode = iota
	// Repair applies again what was applied to an open namespace and whose drift is repaired, and the changes of populations with
	// scope New.
	Repair
	// RollOut brings the changes of populations with scope All to a namespace that exists. It takes nothing over from other clients.
	RollOut
)

// Action is what is done with one object.
type Action int

const (
	// Keep keeps the entry in the inventory.
	Keep Action = iota
	// Apply applies the manifest.
	Apply
	// Adopt applies the manifest if the object belongs to no other client. Only a rollout does it.
	Adopt
	// ReportError reports that the manifest could not be rendered.
	ReportError
	// Prune deletes an object without a manifest.
	Prune
)

// Task is an action for one object, with its entry in the inventory.
type Task struct {
	Action Action
	Entry  v1alpha1.PopulatedObject
	// Object is the rendered manifest. It is empty if the entry is only kept or pruned.
	Object Object
	// Obsolete: the entry has no manifest any more, or its manifest has another object now.
	Obsolete bool
}

// Target is what has an outcome.
type Target struct {
	Key
	// Deletes is the object to delete, if the manifest was removed or has another object now.
	Deletes Identity
}

// Target returns what the task has an outcome for. It is empty if the task only keeps an entry.
func (t *Task) Target() Target {
	if t.Obsolete {
		return Target{KeyOf(t.Entry), IdentityOf(t.Entry)}
	}
	return Target{Key: t.Object.Key}
}

// Plan returns the tasks for a namespace, in order, with the deletions last. wanted are the objects of all populations. In mode RollOut,
// only the changes of the population of are brought. If it is empty, those of each population with scope All are, and other populations
// are applied as to a new namespace.
func Plan(mode Mode, of string, populations []*Population, wanted []Object, inventory []v1alpha1.PopulatedObject) []Task {
	before := map[Key][]v1alpha1.PopulatedObject{}
	for _, entry := range inventory {
		before[KeyOf(entry)] = append(before[KeyOf(entry)], entry)
	}
	isSkipped := func(population string) bool { return mode == RollOut && of != "" && population != of }
	var tasks, obsolete []Task
	for i, object := range wanted {
		if isSkipped(object.Population) {
			continue
		}
		entries, mode := before[object.Key], mode
		delete(before, object.Key)
		if mode == RollOut && of == "" && object.Scope != v1alpha1.ScopeAll {
			mode = Initialize
		}
		isSuperseded := func() bool { return isSuperseded(wanted, i, inventory) }
		current := object.current(entries)
		switch {
		case mode == Repair && object.DriftPolicy != v1alpha1.DriftRepair:
			tasks = append(tasks, kept(ignored(entries))...)
		case mode == Repair && (object.Scope == v1alpha1.ScopeAll && current == nil || isSuperseded() || !object.belongsTo(inventory, wanted)):
			tasks = append(tasks, kept(entries)...)
		case object.Err != nil:
			tasks = append(tasks, reported(object, entries, mode == RollOut && current != nil)...)
		default:
			entry, former := split(object, entries)
			if entry.UID == "" && object.DriftPolicy == v1alpha1.DriftRepair && !isSuperseded() {
				entry.UID = object.movedFrom(inventory, wanted)
			}
			t := Task{Action: Apply, Entry: entry, Object: object}
			switch {
			case mode != RollOut:
			case current != nil:
				t.Action, t.Entry = Keep, *current
			case entry.UID == "":
				t.Action = Adopt
			case isSuperseded():
				t.Action, t.Entry.ContentHash = Keep, object.Hash
			}
			tasks = append(tasks, t)
			if mode != RollOut || object.Hash != "" {
				obsolete = append(obsolete, kept(former)...)
			} else {
				tasks = append(tasks, kept(former)...)
			}
		}
	}
	for _, entry := range inventory {
		_, left := before[KeyOf(entry)]
		switch p := find(populations, entry.Population); {
		case !left:
		case isSkipped(entry.Population):
			tasks = append(tasks, Task{Entry: entry})
		case p == nil || !p.has(entry.Manifest):
			obsolete = append(obsolete, Task{Entry: entry})
		case !isOfOther(entry): // the labels of the namespace changed, and tenants may rely on the object
			tasks = append(tasks, Task{Entry: entry})
		}
	}
	return append(tasks, settled(mode, populations, obsolete, tasks, wanted)...)
}

// find returns the population of a name, or nil.
func find(populations []*Population, name string) *Population {
	if i := slices.IndexFunc(populations, func(p *Population) bool { return p.Name == name }); i >= 0 {
		return populations[i]
	}
	return nil
}

// ignored removes the hashes of objects whose drift is not repaired any more: tenants may change them, so they are rolled out
// again if their drift is to be repaired later. An open namespace does not wait for such an object to be ready.
func ignored(entries []v1alpha1.PopulatedObject) []v1alpha1.PopulatedObject {
	entries = slices.Clone(entries)
	for i := range entries {
		if entries[i].ContentHash = ""; entries[i].State == v1alpha1.PopulatedObjectApplied {
			entries[i].Message = ""
		}
	}
	return entries
}

// isSuperseded reports whether a later manifest of the same object as wanted[i] was applied, or is about to be. To repair both would
// change the object each time, and each change would start the next repair.
func isSuperseded(wanted []Object, i int, known []v1alpha1.PopulatedObject) bool {
	return slices.ContainsFunc(wanted[i+1:], func(later Object) bool {
		return later.Err == nil && later.Identity == wanted[i].Identity &&
			(later.isIn(known) || later.DriftPolicy == v1alpha1.DriftRepair && later.Scope != v1alpha1.ScopeAll && later.belongsTo(known, wanted))
	})
}

// KeyOf returns the manifest of an entry in an inventory.
func KeyOf(entry v1alpha1.PopulatedObject) Key { return Key{entry.Population, entry.Manifest} }

// kept returns a task that keeps each entry.
func kept(entries []v1alpha1.PopulatedObject) []Task {
	var tasks []Task
	for _, entry := range entries {
		tasks = append(tasks, Task{Entry: entry})
	}
	return tasks
}

// reported keeps the entries. It reports the error in the first one, unless there is nothing to roll out.
func reported(object Object, entries []v1alpha1.PopulatedObject, isCurrent bool) []Task {
	first := Task{Action: ReportError, Entry: object.entry(), Object: object}
	if len(entries) > 0 {
		first.Entry, entries = entries[0], entries[1:]
	}
	if isCurrent {
		first.Action = Keep
	}
	return append([]Task{first}, kept(entries)...)
}

// split returns the entry of an object, and those of former objects of its manifest.
func split(object Object, entries []v1alpha1.PopulatedObject) (v1alpha1.PopulatedObject, []v1alpha1.PopulatedObject) {
	current := object.entry()
	current.State = v1alpha1.PopulatedObjectPending
	var former []v1alpha1.PopulatedObject
	for _, entry := range entries {
		switch isSame := IdentityOf(entry) == object.Identity; {
		case isSame:
			current.UID, current.State, current.Message, current.LastAppliedTime, current.ContentHash = entry.UID, entry.State, entry.Message, entry.LastAppliedTime, entry.ContentHash
		case entry.Kind != "" && !isOfOther(entry): // it could be rendered, and was applied
			former = append(former, entry)
		}
	}
	return current, former
}

// settled decides about obsolete entries. It forgets those whose objects stay, and those of objects that another manifest has now. It keeps
// those of objects that another manifest is still to get, so that the namespace does not lose them meanwhile. It deletes the
// others, but only a rollout deletes objects of a population with scope All from an open namespace.
func settled(mode Mode, populations []*Population, obsolete, tasks []Task, wanted []Object) []Task {
	claimed, awaited := sets.New[Identity](), sets.New[Identity]()
	for _, t := range tasks {
		if t.Entry.UID != "" || t.Action == Apply {
			claimed.Insert(IdentityOf(t.Entry))
		}
	}
	for _, object := range wanted {
		awaited.Insert(object.Identity)
	}
	var left []Task
	for _, t := range obsolete {
		identity := IdentityOf(t.Entry)
		if !isPruned(t.Entry) || claimed.Has(identity) {
			continue
		}
		t.Obsolete = true
		p := find(populations, t.Entry.Population)
		if isLeft := mode == Repair && p != nil && p.Scope == v1alpha1.ScopeAll; !isLeft && !awaited.Has(identity) {
			t.Action = Prune
		}
		left = append(left, t)
	}
	return left
}

// isPruned reports whether an object is deleted when its manifest is removed. Objects of other clients stay.
func isPruned(entry v1alpha1.PopulatedObject) bool {
	return entry.Kind != "" && !isOfOther(entry) && entry.PrunePolicy == v1alpha1.PruneDelete
}

// isOfOther reports whether an entry is an object of another client, which was never applied.
func isOfOther(entry v1alpha1.PopulatedObject) bool {
	return entry.State == v1alpha1.PopulatedObjectConflict && entry.UID == ""
}
