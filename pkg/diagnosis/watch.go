/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Watch follows the diagnoses of namespaces.
type Watch struct {
	Diagnoser Diagnoser
	// Namespace is the namespace to follow, or "" for all that are not healthy, and the cluster.
	Namespace string

	seen map[string]*Diagnosis
	// cluster has the objects without a namespace that were found last.
	cluster []Listing
	// list has the number of namespaces, and what could not be read.
	list List
}

// Change is a diagnosis that changed, or that is new.
type Change struct {
	// After is healthy, and has no findings, if a namespace needs no attention any more. It has no namespace if its causes
	// concern every namespace, or objects without one.
	After *Diagnosis
	// Appeared are the findings that are new or changed, and Resolved those that do not exist any more.
	Appeared, Resolved []Finding
}

// Next reads the cluster, and returns what has changed since the last call. A namespace of which only conditions or ages
// changed is not returned. What could not be read is in NotExamined, and nothing is resolved that it may hide. The error means
// that nothing could be read, or that ctx has ended. The cost is that of DiagnoseAll or, for one namespace, of Diagnose.
func (w *Watch) Next(ctx context.Context) ([]Change, error) {
	w.list = List{}
	names, diagnose := sets.New(w.Namespace), w.Diagnoser.diagnose
	if w.Namespace == "" {
		r, suspects, err := w.Diagnoser.newRoundOfAll(ctx, &w.list)
		if err != nil {
			return nil, err
		}
		w.cluster = r.content().keep(w.cluster)
		names, diagnose = suspects.Union(sets.KeySet(w.seen)).Insert(clusterWide), r.diagnose
	}
	note := func(namespace string, err error) {
		w.list.NotExamined = append(w.list.NotExamined, fmt.Sprintf("namespace %q: %v", namespace, err))
	}
	var changes []Change
	for i, name := range sets.List(names) {
		if w.Diagnoser.Diagnosed != nil && name != clusterWide {
			w.Diagnoser.Diagnosed(i-1, len(names)-1) // the cluster comes first
		}
		before := w.seen[name]
		after, unread, err := diagnose(ctx, name)
		switch {
		case ctx.Err() != nil:
			return changes, ctx.Err()
		case apierrors.IsNotFound(err) && (w.Namespace == "" || before != nil):
			after = &Diagnosis{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, Namespace: name, Phase: Gone, State: Healthy, Findings: []Finding{}}
		case err != nil && w.Namespace != "":
			return changes, err
		case err != nil:
			note(name, err)
			continue
		case name == clusterWide:
			w.list.NotExamined = append(w.list.NotExamined, after.NotExamined...)
		}
		hidden := before != nil && len(unread) > 0 && after.UID == before.UID && after.Phase == before.Phase
		if len(unread) > 0 && name != clusterWide && (after.State == Healthy || hidden) {
			note(name, unread[0])
		}
		if hidden {
			after.keep(before)
		}
		if change, changed := compare(before, after); changed && (before != nil || after.State != Healthy || w.Namespace != "") {
			changes = append(changes, change)
		}
		if w.seen == nil {
			w.seen = map[string]*Diagnosis{}
		}
		if w.seen[name] = after; after.State == Healthy && w.Namespace == "" && name != clusterWide {
			delete(w.seen, name)
		}
	}
	return changes, nil
}

// NotExamined returns what could not be read, with the reason.
func (w *Watch) NotExamined() []string { return w.list.NotExamined }

// keep adds the findings of an earlier diagnosis that are missing.
func (d *Diagnosis) keep(before *Diagnosis) {
	for _, f := range before.Findings {
		if !slices.ContainsFunc(d.Findings, func(other Finding) bool { return f.Cause == other.Cause && f.Subject == other.Subject }) {
			d.Findings = append(d.Findings, f)
		}
	}
	sortFindings(d.Findings)
	d.State = worst(d.Findings)
}

// State returns the worst state of the namespaces and of the cluster.
func (w *Watch) State() State {
	state := Healthy
	for _, seen := range w.seen {
		state = state.worse(seen.State)
	}
	return state
}

// compare returns how a diagnosis changed. Before is nil for a new one.
func compare(before, after *Diagnosis) (Change, bool) {
	change := Change{After: after}
	if before == nil {
		change.Appeared = after.Findings
		return change, true
	}
	known := func(from []Finding) func(Finding) bool {
		return func(f Finding) bool {
			return slices.ContainsFunc(from, func(other Finding) bool { return f.print() == other.print() })
		}
	}
	change.Appeared = slices.DeleteFunc(slices.Clone(after.Findings), known(before.Findings))
	left := slices.Clone(change.Appeared)
	change.Resolved = slices.DeleteFunc(slices.DeleteFunc(slices.Clone(before.Findings), known(after.Findings)), func(f Finding) bool {
		// A finding that changed only has another message or state.
		i := slices.IndexFunc(left, func(other Finding) bool { return f.Cause == other.Cause && f.Subject == other.Subject })
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	})
	changed := len(change.Appeared) > 0 || len(change.Resolved) > 0 || len(before.Findings) != len(after.Findings) || before.State != after.State || before.Phase != after.Phase || before.UID != after.UID
	return change, changed
}

var durations = regexp.MustCompile(`\b(\d+(\.\d+)?(ms|s|m|h|d|y))+\b`)

// print identifies a finding in what does not change with time. Errors of the network differ from one attempt to the next.
func (f Finding) print() string {
	message := durations.ReplaceAllString(f.Message, "")
	if f.Cause == APIUnavailable || f.Cause == DiscoveryFailed {
		message = f.Subject
	}
	controller := Liveness("")
	if f.Controller != nil {
		controller = f.Controller.State
	}
	return strings.Join([]string{string(f.Cause), string(f.State), cmp.Or(string(controller), "-"), message}, " ")
}
