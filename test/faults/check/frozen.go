/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// frozenDelay is how long a change of a namespace may take to reach every program. docs/freeze.md promises nothing before.
const frozenDelay = 10 * time.Second

// Frozen is I7: no write of a tenant is stored in a namespace that is frozen, and a rollout changes nothing in a namespace that is frozen
// or terminating. It judges what begins frozenDelay after the namespace changed, and after a fault let every kube-apiserver know.
func Frozen(v *View) []Violation {
	removed, stored := v.removals(), map[int64]history.Event{}
	for _, changes := range v.Objects {
		for _, change := range changes {
			stored[change.Revision] = change
		}
	}
	var all []Violation
	for _, o := range v.Operations {
		if o.Role != history.RoleTenant || o.Namespace == "" || o.Outcome != history.Acknowledged {
			continue
		}
		change := stored[o.ResourceVersion]
		if o.Verb == "delete" {
			change = removed[o.UID]
		}
		if change.Revision == 0 || change.Seen < o.Start { // a request that changes nothing gets an older revision
			continue
		}
		if n := v.At(o.Namespace, change.Revision); n != nil && v.lasts(n, frozen, change.Revision, o.Start) {
			all = append(all, Violation{Check: "I7", Namespace: n.Name, UID: n.UID, Revisions: []int64{change.Revision}, Operation: o.ID,
				Message: fmt.Sprintf("%s of %s %q by tenant %q was stored although the namespace was frozen", o.Verb, o.Resource, o.Name, o.Client)})
		}
	}
	for _, key := range sortedKeys(v.Objects) {
		changes := v.Objects[key]
		for i, change := range changes {
			if change.Object.Quota == nil || change.Deleted || change.Initial ||
				i > 0 && !changes[i-1].Deleted && equality.Semantic.DeepEqual(changes[i-1].Object.Quota.Spec, change.Object.Quota.Spec) {
				continue
			}
			n := v.At(change.Object.Namespace, change.Revision)
			if n == nil {
				continue
			}
			for state, is := range map[string]func(history.Event) bool{"frozen": func(e history.Event) bool { return frozen(e) && !closed(e) }, "terminating": terminating} {
				if v.lasts(n, is, change.Revision, change.Seen) {
					all = append(all, Violation{Check: "I7", Namespace: n.Name, UID: n.UID, Revisions: []int64{change.Revision},
						Message: fmt.Sprintf("the population changed quota %q although the namespace was %s", change.Object.Name, state)})
				}
			}
		}
	}
	return all
}

func frozen(event history.Event) bool {
	_, labelled := event.Object.Core.Labels[v1alpha1.LabelFrozen]
	return labelled
}

func terminating(event history.Event) bool { return event.Object.Deleting }

// lasts reports whether a namespace was in a state at a revision, and since frozenDelay before a time.
func (v *View) lasts(n *Incarnation, is func(history.Event) bool, revision int64, at time.Duration) bool {
	lasts, since := false, time.Duration(0)
	for _, version := range n.Versions {
		if version.Revision >= revision {
			break
		}
		if is(version) && !lasts {
			since = v.delivered(version.Seen)
		}
		lasts = is(version)
	}
	return lasts && at > since+frozenDelay
}

// delivered returns when the caches of every kube-apiserver had a change that was stored at a time: immediately, unless a fault kept them
// behind until it was healed.
func (v *View) delivered(stored time.Duration) time.Duration {
	var injected time.Duration
	for _, mark := range v.Marks {
		switch {
		case mark.Fault != history.FaultQueuedEvents:
		case mark.Name == history.MarkInject:
			injected = mark.At
		case mark.Name == history.MarkHeal && injected <= stored && stored < mark.At:
			return mark.At
		}
	}
	return stored
}

// removals returns the removal of each object.
func (v *View) removals() map[types.UID]history.Event {
	removed := map[types.UID]history.Event{}
	for _, changes := range v.Objects {
		for _, change := range changes {
			if change.Deleted {
				removed[change.Object.UID] = change
			}
		}
	}
	return removed
}
