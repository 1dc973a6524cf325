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
	// listedEach bounds the namespaces whose objects are listed one by one. If more are due, all objects are listed once.
	listedEach = 10
	// foundBefore marks the version of namespaces that a scan has found.
	foundBefore = " found"
	// cluster stands for what concerns all namespaces.
	cluster = ""
)

// Watch follows the diagnoses of namespaces.
type Watch struct {
	Diagnoser Diagnoser
	// Namespace is the namespace to follow, or "" for all that are not healthy, and the cluster.
	Namespace string

	seen        map[string]watched
	found       scan
	scanned     time.Time
	notExamined []string
}

// watched is what is known of a namespace.
type watched struct {
	version   string
	at        time.Time
	diagnosis *Diagnosis
	// problems are what could not be read of it.
	problems []string
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
// that nothing could be read, or that ctx has ended. The cost is a list of the namespaces, one of the NamespaceLifecycles, and a
// diagnosis of each namespace that changed, or was not diagnosed for a minute. What concerns the cluster is read each minute.
func (w *Watch) Next(ctx context.Context) ([]Change, error) {
	d := w.Diagnoser.newRound(ctx)
	now := d.Clock.Now()
	versions := map[string]string{w.Namespace: ""} // no version, so it is diagnosed each time
	list := &List{}
	if w.Namespace == "" {
		all, err := d.suspects(ctx, list)
		if err != nil {
			return nil, err
		}
		versions = all.versions
		if w.scanned.IsZero() || now.Sub(w.scanned) >= scannedEvery || w.due(all, now) > listedEach {
			found := d.scan(ctx, all)
			d.round.scan = found
			found.objects = nil // they are of this round
			found.keep(w.found)
			w.found, w.scanned = found, now
		}
		versions[cluster] = w.scanned.String()
		d.deleted = w.found.deleted
		for name := range w.found.orphaned.Difference(all.known).Union(w.found.deleted) {
			versions[name] += foundBefore
		}
	}
	if w.seen == nil {
		w.seen = map[string]watched{}
	}
	d.Progress = nil
	var changes []Change
	for _, name := range sets.List(sets.KeySet(versions).Union(sets.KeySet(w.seen))) {
		before, version := w.seen[name], versions[name]
		if !before.isDue(version, now) {
			list.NotExamined = append(list.NotExamined, before.problems...)
			continue
		}
		after, problems, err := w.diagnose(ctx, d, name, before.diagnosis)
		switch {
		case ctx.Err() != nil:
			return changes, ctx.Err()
		case err != nil && w.Namespace != "":
			return changes, err
		case err != nil:
			list.NotExamined = append(list.NotExamined, notExamined(name, err))
			continue
		}
		list.NotExamined = append(list.NotExamined, problems...)
		if change, changed := compare(before.diagnosis, after); changed && (before.diagnosis != nil || after.State != Healthy || w.Namespace != "") {
			changes = append(changes, change)
		}
		if w.seen[name] = (watched{version, now, after, problems}); version == "" && after.State == Healthy && w.Namespace == "" {
			delete(w.seen, name)
		}
	}
	w.notExamined = list.NotExamined
	return changes, nil
}

// isDue reports whether a namespace of this version has to be diagnosed.
func (w watched) isDue(version string, now time.Time) bool {
	return version == "" || w.version != version || now.Sub(w.at) >= diagnosedEvery
}

// due counts the namespaces that have to be diagnosed, and whose content has to be listed for that.
func (w *Watch) due(all suspects, now time.Time) int {
	due := 0
	for name := range all.emptying.Union(w.found.orphaned).Union(w.found.deleted) {
		version := all.versions[name]
		if w.found.orphaned.Has(name) && !all.known.Has(name) || w.found.deleted.Has(name) {
			version += foundBefore
		}
		if w.seen[name].isDue(version, now) {
			due++
		}
	}
	return due
}

// NotExamined returns what could not be read, with the reason.
func (w *Watch) NotExamined() []string { return w.notExamined }

// diagnose diagnoses a namespace, or what concerns all of them. It also returns what could not be read. The findings that were
// there before are kept while this may hide them.
func (w *Watch) diagnose(ctx context.Context, d Diagnoser, name string, before *Diagnosis) (*Diagnosis, []string, error) {
	after := &Diagnosis{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, Namespace: name, State: Healthy, Findings: []Finding{}}
	if name == cluster {
		w.found = d.again(ctx, w.found)
		findings, problems := d.diagnoseCluster(ctx, w.found)
		after.Findings, after.State = findings, worst(findings)
		after.NotExamined = slices.Concat(w.found.problems, messages(problems))
		if before != nil && slices.ContainsFunc(problems, func(err error) bool { return !apierrors.IsForbidden(err) }) {
			after.keep(before)
		}
		return after, after.NotExamined, nil
	}
	diagnosis, unread, err := d.diagnose(ctx, name)
	switch {
	case apierrors.IsNotFound(err) && (w.Namespace == "" || before != nil):
		after.Phase = Gone
	case err != nil:
		return nil, nil, err
	default:
		after = diagnosis
	}
	if before == nil || len(unread) == 0 || after.UID != before.UID || after.Phase != before.Phase {
		return after, nil, nil
	}
	after.keep(before)
	return after, []string{notExamined(name, unread[0])}, nil
}

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
