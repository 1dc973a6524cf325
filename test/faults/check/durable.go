/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"slices"

	"github.com/nsinit/nsinit/test/faults/history"
)

// group is the API group whose writes are judged.
const group = "nsinit.dev"

// Durable is I3: every acknowledged write to the API of nsinit is in the history of its etcd, at
// the revision in the response.
func Durable(v *View) []Violation {
	var all []Violation
	for i := range v.Operations {
		if message := v.lost(&v.Operations[i]); message != "" {
			o := v.Operations[i]
			all = append(all, Violation{Check: "I3", Namespace: o.Name, UID: o.UID, Revisions: []int64{o.ResourceVersion}, Operation: o.ID,
				Message: fmt.Sprintf("%s of %s/%s by %q was acknowledged, but %s", o.Verb, o.Resource, o.Subresource, o.Client, message)})
		}
	}
	return all
}

// lost returns what is missing of an acknowledged write, or "".
func (v *View) lost(o *history.Operation) string {
	if o.Group != group || o.Outcome != history.Acknowledged || o.UID == "" {
		return ""
	}
	// Before the request, an object that a snapshot restored may have been removed.
	epoch := v.epochAt(o.Start)
	changes := slices.DeleteFunc(slices.Clone(v.Records[o.UID]), func(e history.Event) bool { return e.Epoch < epoch })
	switch o.Verb {
	case "delete":
		if !slices.ContainsFunc(changes, func(e history.Event) bool { return e.Deleted || e.Object.Deleting }) {
			return "the object was never deleted"
		}
	case "create", "update", "patch":
		if o.ResourceVersion == 0 {
			return "the answer names no revision"
		}
		// A write that removes the last finalizer of an object removes the object, and returns its
		// former state.
		if !slices.ContainsFunc(changes, func(e history.Event) bool { return e.Revision == o.ResourceVersion || e.Deleted }) {
			return "no revision of the object is the one in the answer"
		}
	}
	return ""
}
