/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"math"
	"time"

	"github.com/nsinit/nsinit/test/faults/history"
)

// Lost is I5: while the storage of nsinit is lost, and until an administrator acknowledges that, no gate
// opens but those of namespaces whose NamespaceLifecycle was complete in the storage that was lost.
func Lost(v *View) []Violation {
	var all []Violation
	for _, window := range v.losses() {
		for _, n := range v.Incarnations() {
			for _, opening := range n.Openings {
				if opening.Revision <= window.from || opening.Revision > window.until || v.completeBefore(n, window.epoch) {
					continue
				}
				all = append(all, Violation{Check: "I5", Namespace: n.Name, UID: n.UID, Revisions: []int64{window.from, opening.Revision},
					Message: "the gate opened while the storage of nsinit was lost"})
			}
		}
	}
	return all
}

// window is a range of revisions of Kubernetes' etcd, in which an epoch of the storage of nsinit is lost.
type window struct {
	epoch       int
	from, until int64
}

// losses returns when the storage was lost.
func (v *View) losses() []window {
	var all []window
	for _, mark := range v.Marks {
		switch mark.Name {
		case history.MarkLost:
			all = append(all, window{v.epochAt(mark.At), mark.KubeRevision, math.MaxInt64})
		case history.MarkReplaced:
			if len(all) > 0 {
				all[len(all)-1].until = mark.KubeRevision
			}
		}
	}
	return all
}

// completeBefore reports whether the lifecycle of a namespace was complete in an epoch.
func (v *View) completeBefore(n *Incarnation, epoch int) bool {
	for _, versions := range v.Lifecycles[n.UID] {
		for _, version := range versions {
			if version.Epoch <= epoch && version.Object.Lifecycle.Spec.Initializers == nil {
				return true
			}
		}
	}
	return false
}

// epochAt counts how often the storage was replaced before a time.
func (v *View) epochAt(at time.Duration) int {
	count := 0
	for _, mark := range v.Marks {
		if (mark.Name == history.MarkLost || mark.Name == history.MarkRestored) && mark.At < at {
			count++
		}
	}
	return count
}
