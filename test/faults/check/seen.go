/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Seen is I9: the viewer sees only namespaces that a RoleBinding shows to it, and a namespace names the user on whose behalf a portal
// created it, and no user whom its creator may not name.
func Seen(v *View) []Violation {
	byUID := map[types.UID]*Incarnation{}
	for _, n := range v.Incarnations() {
		byUID[n.UID] = n
	}
	var all []Violation
	for _, o := range v.Operations {
		n := byUID[o.UID]
		if n == nil || o.Outcome != history.Acknowledged {
			continue
		}
		add := func(format string, args ...any) {
			all = append(all, Violation{Check: "I9", Namespace: n.Name, UID: n.UID, Operation: o.ID, Message: fmt.Sprintf(format, args...)})
		}
		switch {
		case o.Verb == history.VerbSee && !n.Initial:
			if !slices.ContainsFunc(v.Objects["/registry/rolebindings/"+n.Name+"/"+history.ViewName], func(e history.Event) bool { return v.At(n.Name, e.Revision) == n }) {
				add("%q saw a namespace that it may not get", o.Client)
			}
		case o.Verb == "create" && o.Resource == "namespaces":
			var requested corev1.Namespace
			if json.Unmarshal(o.Request, &requested) != nil {
				continue
			}
			wanted := ""
			if o.Client == history.ClientPortal {
				wanted = requested.Annotations[v1alpha1.AnnotationOnBehalfOf]
			}
			if stored := n.Versions[0].Object.Core.Annotations[v1alpha1.AnnotationOnBehalfOf]; stored != wanted {
				add("the namespace was created on behalf of %q, and names %q", wanted, stored)
			}
		}
	}
	return all
}
