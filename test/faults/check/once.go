/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Once is I4: each gate opens once per UID, after each planned initializer has acted, and after those that
// it waits for, with one result. It judges the end of a namespace, too: a participant that acted has cleaned
// up before the namespace is removed.
func Once(v *View) []Violation {
	results := v.results()
	var all []Violation
	for _, n := range v.Incarnations() {
		add := func(format string, revisions []int64, args ...any) {
			all = append(all, Violation{Check: "I4", Namespace: n.Name, UID: n.UID, Revisions: revisions, Message: fmt.Sprintf(format, args...)})
		}
		switch {
		case len(n.Openings) > 1:
			add("the gate opened %d times", revisionsOf(n.Openings), len(n.Openings))
		case len(n.Closings) > 0:
			add("the gate closed again", revisionsOf(n.Closings))
		}
		for initializer, found := range results[n.UID] {
			if len(found.objects) > 1 {
				add("initializer %q left %d results for one namespace: %s", []int64{found.first}, initializer, len(found.objects), strings.Join(sortedKeys(found.objects), ", "))
			}
		}
		for _, missing := range v.missing(n) {
			add("a result of initializer %q was deleted from a namespace that is not being deleted: %s", []int64{missing.Revision},
				missing.Object.Annotations[history.AnnotationInitializer], missing.Key)
		}
		if len(n.Openings) > 0 {
			v.acted(n, results[n.UID], add)
		}
		if n.Removed != 0 {
			v.cleanedUp(n, results[n.UID], add)
		}
	}
	return all
}

// result is what an initializer left in a namespace.
type result struct {
	first   int64
	objects map[string]bool
}

// results returns what each initializer stored for each UID of a namespace.
func (v *View) results() map[types.UID]map[string]*result {
	all := map[types.UID]map[string]*result{}
	for _, key := range sortedKeys(v.Objects) {
		for _, change := range v.Objects[key] {
			name, uid := change.Object.Annotations[history.AnnotationInitializer], types.UID(change.Object.Annotations[history.AnnotationNamespaceUID])
			if name == "" || change.Deleted {
				continue
			}
			if all[uid] == nil {
				all[uid] = map[string]*result{}
			}
			found := all[uid][name]
			if found == nil {
				found = &result{first: change.Revision, objects: map[string]bool{}}
				all[uid][name] = found
			}
			found.first = min(found.first, change.Revision)
			found.objects[fmt.Sprintf("%s (UID %s)", key, change.Object.UID)] = true
		}
	}
	return all
}

// missing returns the deletions of results of initializers while the namespace lives. No client of the traffic
// deletes one.
func (v *View) missing(n *Incarnation) []history.Event {
	return slices.DeleteFunc(v.deletedResults(n), func(change history.Event) bool { return n.deletingAt(change.Revision) })
}

// deletedResults returns the deletions of results of initializers.
func (v *View) deletedResults(n *Incarnation) []history.Event {
	var deleted []history.Event
	for _, key := range sortedKeys(v.Objects) {
		for _, change := range v.Objects[key] {
			if change.Deleted && change.Object.Annotations[history.AnnotationInitializer] != "" && change.Object.Namespace == n.Name && v.At(n.Name, change.Revision) == n {
				deleted = append(deleted, change)
			}
		}
	}
	return deleted
}

// complete returns the first complete version of a lifecycle of a namespace, or nil.
func (v *View) complete(namespace types.UID) *v1alpha1.NamespaceLifecycle {
	for _, versions := range v.Lifecycles[namespace] {
		for _, version := range versions {
			if version.Object.Lifecycle.Spec.Initializers == nil {
				return version.Object.Lifecycle
			}
		}
	}
	return nil
}

// acted judges the opening of a gate.
func (v *View) acted(n *Incarnation, results map[string]*result, add func(string, []int64, ...any)) {
	opened := n.Openings[0].Revision
	lifecycle := v.complete(n.UID)
	if lifecycle == nil {
		add("the gate opened although no NamespaceLifecycle of this UID was ever complete", []int64{opened})
		return
	}
	for _, planned := range lifecycle.Spec.Plan {
		if !strings.HasSuffix(planned.Name, history.InitializerDomain) || slices.Contains(lifecycle.Spec.Skipped, planned.Name) {
			continue
		}
		found := results[planned.Name]
		switch {
		case found == nil:
			add("the gate opened although initializer %q never acted for this UID", []int64{opened}, planned.Name)
		case found.first > opened:
			add("the gate opened before initializer %q acted for this UID", []int64{opened, found.first}, planned.Name)
		case !v.plannedAgain(n.UID):
			for _, name := range allPredecessors(lifecycle, planned.Name) {
				if other := results[name]; other != nil && found.first < other.first {
					add("initializer %q acted before initializer %q, for which it waits", []int64{found.first, other.first}, planned.Name, name)
				}
			}
		}
	}
}

// allPredecessors returns the names of the initializers that must finish before one acts, with those that must
// finish before these. One of them may have been skipped, and left no result.
func allPredecessors(lifecycle *v1alpha1.NamespaceLifecycle, name string) []string {
	names := helper.Predecessors(lifecycle, name)
	for i := 0; i < len(names); i++ {
		for _, before := range helper.Predecessors(lifecycle, names[i]) {
			if !slices.Contains(names, before) {
				names = append(names, before)
			}
		}
	}
	return names
}

// plannedAgain reports whether a namespace got another plan after the storage was replaced. Initializers that acted
// in the order of the lost one need not have acted in the order of the other.
func (v *View) plannedAgain(namespace types.UID) bool {
	lifecycles := v.Lifecycles[namespace]
	return slices.ContainsFunc(lifecycles, func(versions []history.Event) bool { return versions[0].Epoch != lifecycles[0][0].Epoch })
}

// cleanedUp judges the removal of a namespace.
func (v *View) cleanedUp(n *Incarnation, results map[string]*result, add func(string, []int64, ...any)) {
	lifecycles := v.Lifecycles[n.UID]
	if len(lifecycles) == 0 {
		return
	}
	// The last one counts: who has to clean up after a namespace is not known any more when the storage is
	// lost, or replaced by a snapshot that is older than the namespace.
	var last history.Event
	for _, versions := range lifecycles {
		if version := versions[len(versions)-1]; version.Seen >= last.Seen {
			last = version
		}
	}
	removed := n.Last()
	if last.Epoch < v.epochAt(removed.Seen) {
		return
	}
	for _, planned := range last.Object.Lifecycle.Spec.Plan {
		if !planned.Finalizer || results[planned.Name] == nil {
			continue
		}
		i := slices.IndexFunc(v.Operations, func(o history.Operation) bool {
			return o.Verb == history.VerbCleanup && o.Client == planned.Name && o.NamespaceUID == n.UID && o.Outcome == history.Acknowledged && o.Start < removed.Seen
		})
		if i < 0 {
			add("the namespace was removed although participant %q acted for it and did not clean up", []int64{removed.Revision}, planned.Name)
			continue
		}
		for _, change := range v.deletedResults(n) {
			if helper.HoldsContent(&planned) && change.Seen < v.Operations[i].Start {
				add("%s was deleted before participant %q, which holds the content, cleaned up", []int64{change.Revision}, change.Key, planned.Name)
			}
		}
	}
}

func revisionsOf(events []history.Event) []int64 {
	var all []int64
	for _, event := range events {
		all = append(all, event.Revision)
	}
	return all
}
