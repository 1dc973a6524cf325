/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// diagnosedEvery is how often a namespace is diagnosed again that did not change: its content may change.
	diagnosedEvery = time.Minute
	// scannedEvery is how often content of namespaces that do not exist, and objects whose deletion takes too long, are
	// searched for, which lists every object.
	scannedEvery = 10 * time.Minute
	// cluster stands for what concerns all namespaces.
	cluster = ""
)

// Watch follows the diagnoses of namespaces.
type Watch struct {
	Diagnoser Diagnoser
	// Namespace is the namespace to follow, or "" for all that are not healthy, and the cluster.
	Namespace string

	seen    map[string]watched
	found   scan
	scanned time.Time
}

// watched is what is known of a namespace.
type watched struct {
	version   string
	at        time.Time
	diagnosis *Diagnosis
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
// changed is not returned. The cost is a list of the namespaces, one of the NamespaceLifecycles, and a diagnosis of each
// namespace that changed, or was not diagnosed for a minute. What concerns the cluster is read each minute.
func (w *Watch) Next(ctx context.Context) ([]Change, error) {
	d := w.Diagnoser
	d.lists = &runtimeLists{}
	now := d.Clock.Now()
	versions := map[string]string{w.Namespace: ""} // no version, so it is diagnosed each time
	if w.Namespace == "" {
		var known sets.Set[string]
		var err error
		if versions, known, err = d.suspects(ctx, &List{}); err != nil {
			return nil, err
		}
		if w.scanned.IsZero() || now.Sub(w.scanned) >= scannedEvery {
			found := d.scan(ctx, known)
			found.keep(w.found)
			w.found, w.scanned = found, now
		}
		versions[cluster] = w.scanned.String()
		d.deleted = w.found.deleted
		for name := range w.found.orphaned.Difference(known).Union(w.found.deleted) {
			versions[name] += " found"
		}
	}
	if w.seen == nil {
		w.seen = map[string]watched{}
	}
	d.Progress = nil
	var changes []Change
	for _, name := range sets.List(sets.KeySet(versions).Union(sets.KeySet(w.seen))) {
		before, version := w.seen[name], versions[name]
		if version != "" && before.version == version && now.Sub(before.at) < diagnosedEvery {
			continue
		}
		after, err := w.diagnose(ctx, d, name, before.diagnosis)
		switch {
		case apierrors.IsNotFound(err) && (w.Namespace == "" || before.diagnosis != nil):
			after = &Diagnosis{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, Namespace: name, Phase: Gone, State: Healthy, Findings: []Finding{}}
		case err != nil:
			return changes, err
		}
		if change, changed := compare(before.diagnosis, after); changed && (before.diagnosis != nil || after.State != Healthy || w.Namespace != "") {
			changes = append(changes, change)
		}
		if w.seen[name] = (watched{version, now, after}); version == "" && after.State == Healthy && w.Namespace == "" {
			delete(w.seen, name)
		}
	}
	return changes, nil
}

// diagnose diagnoses a namespace, or what concerns all of them.
func (w *Watch) diagnose(ctx context.Context, d Diagnoser, name string, before *Diagnosis) (*Diagnosis, error) {
	if name != cluster {
		return d.Diagnose(ctx, name)
	}
	w.found = d.again(ctx, w.found)
	findings, problems := d.diagnoseCluster(ctx, w.found)
	failed := func(err error) bool { return !apierrors.IsForbidden(err) }
	if before != nil && slices.ContainsFunc(problems, failed) {
		return before, ctx.Err() // what is not found may not be resolved
	}
	return &Diagnosis{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, State: worst(findings), Findings: append([]Finding{}, findings...),
		NotExamined: slices.Concat(w.found.problems, messages(problems))}, ctx.Err()
}

// State returns the worst state of the namespaces and of the cluster.
func (w *Watch) State() State {
	state := Healthy
	for _, seen := range w.seen {
		if seen.diagnosis.State.rank() > state.rank() {
			state = seen.diagnosis.State
		}
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
