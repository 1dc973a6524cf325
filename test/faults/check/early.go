/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/test/faults/history"
)

// Early is I1: no tenant write is stored in a namespace before the revision that opened its gate.
func Early(v *View) []Violation {
	var all []Violation
	for _, n := range v.Incarnations() {
		if n.Unstamped && !n.Initial {
			all = append(all, Violation{Check: "I1", Namespace: n.Name, UID: n.UID, Revisions: []int64{n.Created},
				Message: "the namespace was created without the label that closes its gate"})
		}
	}
	for _, key := range sortedKeys(v.Objects) {
		if violation := v.earlyObject(v.Objects[key]); violation != nil {
			all = append(all, *violation)
		}
	}
	return append(all, v.earlyDeletions()...)
}

// earlyObject judges the changes of one key.
func (v *View) earlyObject(changes []history.Event) *Violation {
	judged := map[types.UID]bool{}
	for i, change := range changes {
		tenant := change.Object.Annotations[history.AnnotationTenant]
		if tenant == "" || change.Deleted || change.Initial || judged[change.Object.UID] {
			continue
		}
		judged[change.Object.UID] = true // later changes of the object come after the opening, too
		object := fmt.Sprintf("%s %q of tenant %q", change.Object.Kind, change.Object.Name, tenant)
		if n := v.At(change.Object.Namespace, change.Revision); n != nil {
			if message := n.early(change.Revision); message != "" {
				return &Violation{Check: "I1", Namespace: n.Name, UID: n.UID, Revisions: []int64{change.Revision}, Message: object + " was stored " + message}
			}
			continue
		}
		if n := v.inherits(changes, i); n != nil {
			return &Violation{Check: "I1", Namespace: n.Name, UID: n.UID, Revisions: []int64{change.Revision, n.Created},
				Message: object + " was stored after the former namespace was removed, and is in this one"}
		}
	}
	return nil
}

// early returns how a write in a namespace came too early, or nothing.
func (n *Incarnation) early(revision int64) string {
	switch opened := n.Opened(); {
	case opened == 0:
		return "in the namespace, whose gate never opened"
	case revision < opened:
		return fmt.Sprintf("in the namespace before its gate opened at revision %d", opened)
	}
	return ""
}

// inherits returns the namespace that was created while an object was stored under its name.
func (v *View) inherits(changes []history.Event, i int) *Incarnation {
	for _, n := range v.Namespaces[changes[i].Object.Namespace] {
		if n.Created < changes[i].Revision {
			continue
		}
		for _, later := range changes[i+1:] {
			if later.Deleted && later.Revision < n.Created {
				return nil
			}
		}
		return n
	}
	return nil
}

// earlyDeletions finds deletions by tenants before the gate opened. etcd does not record who deleted an
// object, but the tenant does.
func (v *View) earlyDeletions() []Violation {
	removed := v.removals()
	var all []Violation
	for _, o := range v.Operations {
		if o.Role != history.RoleTenant || o.Verb != "delete" || o.Outcome != history.Acknowledged || o.Namespace == "" || o.UID == "" {
			continue
		}
		change, ok := removed[o.UID]
		if !ok {
			continue
		}
		n := v.At(o.Namespace, change.Revision)
		if n == nil {
			continue
		}
		if message := n.early(change.Revision); message != "" {
			all = append(all, Violation{Check: "I1", Namespace: n.Name, UID: n.UID, Revisions: []int64{change.Revision}, Operation: o.ID,
				Message: fmt.Sprintf("tenant %q deleted %s %q %s", o.Client, change.Object.Kind, change.Object.Name, message)})
		}
	}
	return all
}
