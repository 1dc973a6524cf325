/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// View is a history in the order of the stores.
type View struct {
	*history.History
	Options

	// Namespaces holds the incarnations of each name, in their order.
	Namespaces map[string][]*Incarnation
	// Objects holds the changes of each object in Kubernetes' etcd, in their order.
	Objects map[string][]history.Event
	// Records holds the changes of each object in nsinit's etcd, by its UID.
	Records map[types.UID][]history.Event
	// Lifecycles holds the versions of each NamespaceLifecycle, by the UID of the namespace.
	Lifecycles map[types.UID][][]history.Event
	// Configurations holds every change of a configuration, in the order of the store.
	Configurations []history.Event
}

// Incarnation is one life of a namespace: everything that was stored under one UID.
type Incarnation struct {
	Name string
	UID  types.UID
	// Versions are the changes, the removal included.
	Versions []history.Event
	// Created is the first revision, Removed the revision of the removal or 0.
	Created, Removed int64
	// Openings are the changes that removed the label, Closings those that set it again.
	Openings, Closings []history.Event
	// Unstamped means that the first version was open.
	Unstamped bool
	// Initial means that it was there when the history began.
	Initial bool
}

// NewView sorts a history.
func NewView(h *history.History, options Options) *View {
	v := &View{
		History: h, Options: options,
		Namespaces: map[string][]*Incarnation{}, Objects: map[string][]history.Event{}, Records: map[types.UID][]history.Event{}, Lifecycles: map[types.UID][][]history.Event{},
	}
	for _, event := range h.Events {
		switch {
		case event.Object == nil:
		case event.Store == history.Nsinit:
			v.Records[event.Object.UID] = append(v.Records[event.Object.UID], event)
			if event.Object.Configuration != nil {
				v.Configurations = append(v.Configurations, event)
			}
		case event.Object.Core != nil:
			v.addNamespace(event)
		default:
			v.Objects[event.Key] = append(v.Objects[event.Key], event)
		}
	}
	v.indexLifecycles()
	return v
}

func (v *View) addNamespace(event history.Event) {
	object := event.Object
	if !strings.HasPrefix(object.Name, v.NamePrefix) {
		return
	}
	all := v.Namespaces[object.Name]
	if len(all) == 0 || all[len(all)-1].UID != object.UID {
		all = append(all, &Incarnation{
			Name: object.Name, UID: object.UID, Created: event.Revision, Initial: event.Initial, Unstamped: !closed(event),
		})
		v.Namespaces[object.Name] = all
	}
	n := all[len(all)-1]
	if event.Deleted {
		n.Removed = event.Revision
	} else if len(n.Versions) > 0 {
		switch before := n.Versions[len(n.Versions)-1]; {
		case closed(before) && !closed(event):
			n.Openings = append(n.Openings, event)
		case !closed(before) && closed(event):
			n.Closings = append(n.Closings, event)
		}
	}
	n.Versions = append(n.Versions, event)
}

func closed(event history.Event) bool {
	_, labelled := event.Object.Core.Labels[v1alpha1.LabelInitializing]
	return labelled
}

// Incarnations yields every incarnation, in the order of the names.
func (v *View) Incarnations() []*Incarnation {
	var all []*Incarnation
	for _, name := range sortedKeys(v.Namespaces) {
		all = append(all, v.Namespaces[name]...)
	}
	return all
}

// At returns the incarnation of a namespace at a revision, or nil.
func (v *View) At(name string, revision int64) *Incarnation {
	for _, n := range v.Namespaces[name] {
		if n.Created <= revision && (n.Removed == 0 || revision < n.Removed) {
			return n
		}
	}
	return nil
}

// Opened returns the revision from which tenants may write, or 0.
func (n *Incarnation) Opened() int64 {
	if n.Unstamped {
		return n.Created
	}
	if len(n.Openings) == 0 {
		return 0
	}
	return n.Openings[0].Revision
}

// deletingAt reports whether the namespace is being deleted at a revision.
func (n *Incarnation) deletingAt(revision int64) bool {
	deleting := false
	for _, version := range n.Versions {
		if version.Revision <= revision {
			deleting = version.Object.Deleting
		}
	}
	return deleting
}

// Last returns the last version.
func (n *Incarnation) Last() history.Event { return n.Versions[len(n.Versions)-1] }

// indexLifecycles sorts the versions of every NamespaceLifecycle by the namespace's UID, removals left
// out: a namespace may have several, one after the other.
func (v *View) indexLifecycles() {
	for _, uid := range sortedKeys(v.Records) {
		versions := slices.DeleteFunc(slices.Clone(v.Records[uid]), func(e history.Event) bool {
			return e.Deleted || e.Object.Lifecycle == nil
		})
		if len(versions) > 0 {
			namespace := versions[0].Object.Lifecycle.Spec.NamespaceUID
			v.Lifecycles[namespace] = append(v.Lifecycles[namespace], versions)
		}
	}
	for _, lifecycles := range v.Lifecycles {
		slices.SortFunc(lifecycles, func(a, b []history.Event) int { return cmp.Compare(a[0].Seen, b[0].Seen) })
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
