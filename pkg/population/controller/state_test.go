/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	created, configured, unchanged = population.Created, population.Configured, population.Unchanged
	conflict, refused              = population.Conflict, population.Refused
)

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// viewOf is a view of a namespace with a manifest for each outcome, m0, m1 and so on. An empty outcome is not known yet.
func viewOf(name string, checked time.Duration, outcomes ...population.Outcome) *view {
	v := &view{of: &population.Population{Name: "p"}, source: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}, checked: start().Add(checked), stuck: start().Add(checked - recheck), results: map[population.Target]population.Result{}}
	for i, outcome := range outcomes {
		key := population.Key{Population: "p", Manifest: fmt.Sprintf("m%d", i)}
		v.wanted = append(v.wanted, population.Object{Key: key, APIVersion: "v1", Identity: population.Identity{Kind: "ConfigMap", Name: key.Manifest}})
		result := population.Result{Target: population.Target{Key: key}, Outcome: outcome}
		if outcome == conflict || outcome == refused {
			result.Message = fmt.Sprintf("%s in %s", outcome, name)
		}
		if outcome != "" {
			v.results[result.Target] = result
		}
	}
	return v
}

func tallyOf(name string, checked time.Duration, outcomes ...population.Outcome) tally {
	return viewOf(name, checked, outcomes...).count(nil, true)
}

// TestCount: what the inventory has counts as unchanged. A rollout also knows from it what an earlier process was refused.
func TestCount(t *testing.T) {
	entry := func(manifest, name, uid string, state v1alpha1.PopulatedObjectState) v1alpha1.PopulatedObject {
		return v1alpha1.PopulatedObject{Population: "p", Manifest: manifest, APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "u", State: state, Message: "because"}
	}
	without := func(o v1alpha1.PopulatedObject) v1alpha1.PopulatedObject { o.UID = ""; return o }
	for name, test := range map[string]struct {
		outcome   population.Outcome
		inventory []v1alpha1.PopulatedObject
		report    string
		apply     string
	}{
		"not checked":              {"", nil, "map[] unknown 1", "map[] unknown 1"},
		"to create":                {created, nil, "map[created:1]", "map[unchanged:1]"},
		"to change":                {configured, nil, "map[configured:1]", "map[unchanged:1]"},
		"refused":                  {refused, nil, "map[refused:1] problem", "map[refused:1] problem"},
		"in the inventory":         {"", []v1alpha1.PopulatedObject{entry("m0", "m0", "u", v1alpha1.PopulatedObjectApplied)}, "map[unchanged:1] recorded", "map[unchanged:1] recorded"},
		"refused before it was":    {refused, []v1alpha1.PopulatedObject{entry("m0", "m0", "u", v1alpha1.PopulatedObjectApplied)}, "map[unchanged:1] recorded", "map[unchanged:1] recorded"},
		"applied, and now failing": {"", []v1alpha1.PopulatedObject{entry("m0", "m0", "u", v1alpha1.PopulatedObjectFailed)}, "map[refused:1] recorded problem", "map[refused:1] recorded problem"},
		"under another name":       {"", []v1alpha1.PopulatedObject{entry("m0", "former", "u", v1alpha1.PopulatedObjectApplied)}, "map[] unknown 1", "map[] unknown 1"},
		"failed":                   {"", []v1alpha1.PopulatedObject{without(entry("m0", "m0", "", v1alpha1.PopulatedObjectFailed))}, "map[] unknown 1", "map[refused:1] problem"},
		"a conflict":               {"", []v1alpha1.PopulatedObject{without(entry("m0", "m0", "", v1alpha1.PopulatedObjectConflict))}, "map[] unknown 1", "map[conflict:1] problem"},
		"after a crash":            {"", []v1alpha1.PopulatedObject{without(entry("m0", "m0", "", v1alpha1.PopulatedObjectPending))}, "map[] unknown 1", "map[] unknown 1"},
		"of another manifest":      {"", []v1alpha1.PopulatedObject{without(entry("m1", "m0", "", v1alpha1.PopulatedObjectFailed))}, "map[] unknown 1", "map[] unknown 1"},
	} {
		t.Run(name, func(t *testing.T) {
			for apply, want := range map[bool]string{false: test.report, true: test.apply} {
				got := viewOf("shop", 0, test.outcome).count(test.inventory, apply)
				text := fmt.Sprint(got.counts)
				if got.unknown > 0 {
					text += fmt.Sprintf(" unknown %d", got.unknown)
				}
				text += strings.Repeat(" recorded", got.recorded) + strings.Repeat(" problem", len(got.problems))
				if text != want {
					t.Errorf("apply %t: %s, want %s", apply, text, want)
				}
			}
		})
	}
}

// TestCountObsolete: what is to be deleted is unknown until the namespace is checked. Then it is deleted, or is tried again.
func TestCountObsolete(t *testing.T) {
	entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "old", APIVersion: "v1", Kind: "ConfigMap", Name: "old", UID: "u", PrunePolicy: v1alpha1.PruneDelete, State: v1alpha1.PopulatedObjectApplied}
	failed := entry
	failed.State, failed.Message = v1alpha1.PopulatedObjectFailed, "because"
	for name, test := range map[string]struct {
		entry         v1alpha1.PopulatedObject
		outcome       population.Outcome
		report, apply string
	}{
		"not checked":            {entry, "", "map[] unknown 1", "map[] unknown 1"},
		"to delete":              {entry, population.Deleted, "map[deleted:1]", "map[] current recorded"},
		"not deleted":            {entry, refused, "map[refused:1] refuses", "map[refused:1] refuses"},
		"by an earlier process":  {failed, "", "map[] unknown 1", "map[refused:1] refuses"},
		"another manifest's now": {entry, unchanged, "map[] current recorded", "map[] current recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			for apply, want := range map[bool]string{false: test.report, true: test.apply} {
				v := viewOf("shop", 0)
				if test.outcome != "" {
					v.set([]population.Result{{Target: population.Target{Key: population.KeyOf(test.entry), Deletes: population.IdentityOf(test.entry)}, Outcome: test.outcome}}, nil, start())
				}
				got := v.count([]v1alpha1.PopulatedObject{test.entry}, apply)
				text := fmt.Sprint(got.counts)
				for what, is := range map[string]bool{fmt.Sprintf(" unknown %d", got.unknown): got.unknown > 0, " refuses": got.refuses()} {
					if is {
						text += what
					}
				}
				if got.isCurrent() {
					text += " current"
				}
				if got.isRecorded() {
					text += " recorded"
				}
				if text != want {
					t.Errorf("apply %t: %s, want %s", apply, text, want)
				}
			}
		})
	}
}

// TestCountChanged: an object whose manifest has changed since is rolled out again.
func TestCountChanged(t *testing.T) {
	v := viewOf("shop", 0, "")
	v.wanted[0].Hash = "2"
	entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "m0", APIVersion: "v1", Kind: "ConfigMap", Name: "m0", UID: "u", ContentHash: "1"}
	if got := v.count([]v1alpha1.PopulatedObject{entry}, true); got.unknown != 1 || got.isRecorded() {
		t.Errorf("%+v", got)
	}
	entry.ContentHash = "2"
	if got := v.count([]v1alpha1.PopulatedObject{entry}, true); !got.isCurrent() || !got.isRecorded() {
		t.Errorf("%+v", got)
	}
}

// TestRecorded: when the inventory has every object, the outcomes are not kept, except for those of deletions. The namespace stays complete.
func TestRecorded(t *testing.T) {
	entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "m0", APIVersion: "v1", Kind: "ConfigMap", Name: "m0", UID: "u"}
	old := v1alpha1.PopulatedObject{Population: "p", Manifest: "old", APIVersion: "v1", Kind: "ConfigMap", Name: "old", UID: "o", PrunePolicy: v1alpha1.PruneDelete}
	inventory := func(entries ...v1alpha1.PopulatedObject) *v1alpha1.PopulatedNamespace {
		return &v1alpha1.PopulatedNamespace{Status: v1alpha1.PopulatedNamespaceStatus{Objects: entries}}
	}
	v := viewOf("shop", 0, created)
	v.results[population.Target{Key: population.KeyOf(old), Deletes: population.IdentityOf(old)}] = population.Result{Outcome: population.Deleted}
	for _, test := range []struct {
		inventory *v1alpha1.PopulatedNamespace
		kept      int
	}{{inventory(), 2}, {inventory(entry, old), 1}, {inventory(entry, old), 1}, {inventory(entry), 1}} {
		got := v.tally(test.inventory, true)
		if _, due := got.due(true, time.Time{}); !got.isCurrent() || len(v.results) != test.kept || due != (test.kept == 2) {
			t.Errorf("with %d entries: %+v, due %t, outcomes: %d, want %d", len(test.inventory.Status.Objects), got, due, len(v.results), test.kept)
		}
	}
	v = viewOf("shop", 0, created)
	if v.tally(inventory(entry), true); v.results != nil {
		t.Errorf("outcomes: %v", v.results)
	}
}

// TestUnrepaired: an object whose drift cannot be repaired does not pause a rollout. The status is soon counted again.
func TestUnrepaired(t *testing.T) {
	var tallies []tally
	for range tooMany {
		entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "m0", APIVersion: "v1", Kind: "ConfigMap", Name: "m0", UID: "u", State: v1alpha1.PopulatedObjectFailed}
		tallies = append(tallies, viewOf("shop", 0, "").count([]v1alpha1.PopulatedObject{entry}, true))
	}
	if batch, wait := next(tallies, tooMany, true, time.Time{}, start()); refusing(tallies) != 0 || tallies[0].isCurrent() || len(batch) != 0 || wait != retryRefused {
		t.Errorf("%d refuse, %+v is checked, wait %s", refusing(tallies), batch, wait)
	}
}

// TestNext: a rollout begins with one namespace, continues with a few, and stops when several refuse objects. What was
// refused is tried again first.
func TestNext(t *testing.T) {
	todo := func(names ...string) (tallies []tally) {
		for _, name := range names {
			tallies = append(tallies, tallyOf(name, 0, ""))
		}
		return tallies
	}
	all := func(groups ...[]tally) (tallies []tally) {
		for _, group := range groups {
			tallies = append(tallies, group...)
		}
		return tallies
	}
	one := func(name string, checked time.Duration, outcomes ...population.Outcome) []tally {
		return []tally{tallyOf(name, checked, outcomes...)}
	}
	failing := func(name string, retry time.Duration, outcomes ...population.Outcome) []tally {
		t := tallyOf(name, 0, outcomes...)
		t.view.err, t.view.retry = errors.New("no network"), start().Add(retry)
		return []tally{t}
	}
	untouched := func(name string) []tally {
		t := tallyOf(name, 0, unchanged)
		t.view.checked = time.Time{}
		return []tally{t}
	}
	const many = "a b c d e f g h i j k l m n o p q r s t"
	for name, test := range map[string]struct {
		tallies []tally
		now     time.Duration
		ready   time.Duration
		apply   string
		wait    time.Duration
		report  string
	}{
		"nothing":                 {apply: "", wait: recheck},
		"the first":               {tallies: todo("a", "b", "c"), apply: "a", report: "a b c", wait: recheck},
		"the second":              {tallies: all(one("a", 0, unchanged), todo("b", "c")), apply: "b", report: "b c", wait: recheck},
		"after two":               {tallies: all(one("a", 0, unchanged), one("b", 0, created), todo("c", "d", "e")), apply: "c d", report: "c d e", wait: recheck},
		"two need nothing":        {tallies: all(untouched("a"), untouched("b"), todo("c", "d")), apply: "c", report: "c d a b", wait: recheck},
		"its clock is ahead":      {tallies: one("a", 0, refused), now: retryRefused, ready: time.Hour, apply: "a", report: "", wait: recheck},
		"after many":              {tallies: all(one("a", 0, unchanged), one("b", 0, unchanged), one("c", 0, unchanged), one("d", 0, unchanged), one("e", 0, unchanged), todo("f", "g", "h", "i", "j", "k")), apply: "f g h i j", report: "f g h i j k", wait: recheck},
		"a report of many":        {tallies: todo(strings.Fields(many + " u")...), apply: "a", report: many, wait: recheck},
		"one refuses":             {tallies: all(one("a", 0, refused), todo("b")), apply: "b", report: "b", wait: retryRefused},
		"a conflict":              {tallies: all(one("a", 0, conflict), one("b", 0, conflict), one("c", 0, conflict), todo("d")), apply: "d", report: "d", wait: recheck},
		"three refuse":            {tallies: all(one("a", 0, refused), one("b", 0, unchanged, refused), one("c", 0, refused, conflict), todo("d")), apply: "", report: "d", wait: retryRefused},
		"half a minute":           {tallies: all(one("a", 0, refused), one("b", 0, refused), one("c", 0, refused), todo("d")), now: retryRefused / 2, apply: "", report: "d", wait: retryRefused / 2},
		"after a minute":          {tallies: all(one("a", 0, refused), one("b", 0, refused), one("c", 0, refused), todo("d")), now: retryRefused, apply: "a", report: "d", wait: recheck},
		"it became ready":         {tallies: all(one("a", 0, refused), one("b", 0, refused), one("c", 0, refused), todo("d")), now: 2 * time.Second, ready: time.Second, apply: "a", report: "d a b c", wait: recheck},
		"it was ready":            {tallies: all(one("a", time.Second, refused), todo("b")), now: 2 * time.Second, ready: time.Second, apply: "b", report: "b", wait: retryRefused - time.Second},
		"after ten minutes":       {tallies: all(one("a", 0, conflict), one("b", 0, unchanged)), now: recheck, apply: "a", report: "a b", wait: recheck},
		"asked for a conflict":    {tallies: all(one("a", 0, conflict), one("b", 0, unchanged)), now: 2 * time.Second, ready: time.Second, apply: "a", report: "a", wait: recheck - 2*time.Second},
		"others are not delayed":  {tallies: all(one("a", 0, conflict), one("b", 0, conflict), one("c", 0, unchanged), one("d", 0, unchanged), todo("e", "f")), now: recheck, apply: "e a", report: "e f a b c d", wait: recheck},
		"partly not checked":      {tallies: one("a", 0, refused, ""), apply: "a", report: "a", wait: recheck},
		"a new manifest":          {tallies: all(one("a", 0, refused, ""), one("b", 0, refused, ""), one("c", 0, refused, ""), todo("d")), apply: "a", report: "d a b c", wait: recheck},
		"one fails":               {tallies: all(failing("a", 0, ""), todo("b", "c")), apply: "b", report: "b c a", wait: recheck},
		"the last one fails":      {tallies: all(failing("a", 0, ""), one("b", 0, unchanged)), apply: "a", report: "a", wait: recheck},
		"two fail":                {tallies: all(failing("a", 2*time.Second, ""), failing("b", time.Second, "")), now: 2 * time.Second, apply: "b", report: "b a", wait: recheck},
		"it fails for now":        {tallies: all(failing("a", time.Second, ""), one("b", 0, unchanged)), apply: "", report: "", wait: time.Second},
		"refused, and fails":      {tallies: all(failing("a", 0, refused), todo("b")), apply: "b", report: "b a", wait: recheck},
		"three refuse, fail":      {tallies: all(failing("a", 0, refused), failing("b", 0, refused), failing("c", 0, refused), todo("d")), apply: "a", report: "d a b c", wait: recheck},
		"paused, a new one fails": {tallies: all(one("a", 0, refused), one("b", 0, refused), one("c", 0, refused), failing("d", 0, "")), apply: "", report: "d", wait: retryRefused},
	} {
		t.Run(name, func(t *testing.T) {
			var ready time.Time
			if test.ready > 0 {
				ready = start().Add(test.ready)
			}
			for apply, want := range map[bool]string{true: test.apply, false: test.report} {
				batch, wait := next(test.tallies, tooMany, apply, ready, start().Add(test.now))
				var names []string
				for _, tally := range batch {
					names = append(names, tally.view.source.Name)
				}
				if got := strings.Join(names, " "); got != want || apply && wait != test.wait {
					t.Errorf("apply %t: %q and wait %s, want %q and %s", apply, got, wait, want, test.wait)
				}
			}
		})
	}
	// What is in the inventory is never checked again.
	known := viewOf("a", 0, "")
	known.err = errors.New("no network")
	entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "m0", APIVersion: "v1", Kind: "ConfigMap", Name: "m0", UID: "u"}
	if batch, _ := next([]tally{known.count([]v1alpha1.PopulatedObject{entry}, true)}, tooMany, true, time.Time{}, start().Add(24*time.Hour)); len(batch) != 0 {
		t.Errorf("checked again: %+v", batch)
	}
}

// TestStuck: a conflict is checked after a minute, and then less often.
func TestStuck(t *testing.T) {
	v, now := viewOf("shop", 0, conflict), start()
	v.stuck = time.Time{}
	check := func(outcome population.Outcome) time.Duration {
		v.set([]population.Result{{Target: population.Target{Key: v.wanted[0].Key}, Outcome: outcome}}, nil, now)
		due, _ := v.count(nil, true).due(true, time.Time{})
		wait := due.Sub(now)
		now = due
		return wait
	}
	for i, want := range []time.Duration{1, 1, 2, 4, 8, 10, 10} {
		if got := check(conflict); got != want*time.Minute {
			t.Errorf("check %d: the next one after %s, want %d minutes", i, got, want)
		}
	}
	check(unchanged)
	if got := check(conflict); got != time.Minute {
		t.Errorf("a new conflict is checked after %s", got)
	}
}

// TestRenew: what is known about a namespace stays as long as a change of the namespace does not change its objects.
func TestRenew(t *testing.T) {
	compiled, errs := population.Compile("p", &v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{
		{Name: "m", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${namespaceObject.metadata.labels.team}"}}`)}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	source := func(team, note string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": team}, Annotations: map[string]string{"note": note}}}
	}
	r := &rollout{compiled: compiled}
	former := r.renew(nil, source("a", ""))
	former.set([]population.Result{{Target: population.Target{Key: former.wanted[0].Key}, Outcome: conflict}}, nil, start())
	annotated := source("a", "x")
	if v := r.renew(former, annotated); v.source != annotated || len(v.results) != 1 || v.checked != start() {
		t.Errorf("with another annotation: %+v", v)
	}
	if v := r.renew(former, source("b", "")); len(v.results) != 0 || v.wanted[0].Identity.Name != "b" {
		t.Errorf("with another label: %+v", v)
	}
}

// TestTally: the outcomes in a namespace are counted again after a check, and when its inventory changes. So a check of one namespace does
// not count those of all others.
func TestTally(t *testing.T) {
	v, inventory := viewOf("shop", 0, ""), &v1alpha1.PopulatedNamespace{}
	counted := func(inventory *v1alpha1.PopulatedNamespace) bool {
		before := v.counted
		v.tally(inventory, true)
		return v.counted != before
	}
	if !counted(inventory) || counted(inventory) {
		t.Error("it was not counted once")
	}
	v.set([]population.Result{{Target: population.Target{Key: v.wanted[0].Key}, Outcome: created}}, nil, start())
	if !counted(inventory) || !v.tally(inventory, true).isCurrent() {
		t.Error("a check does not count")
	}
	if !counted(inventory.DeepCopy()) {
		t.Error("another inventory does not count")
	}
	compiled, errs := population.Compile("p", &v1alpha1.NamespacePopulationSpec{})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	r := &rollout{compiled: compiled}
	former := r.renew(nil, v.source)
	former.tally(inventory, true)
	if renewed := r.renew(former, &metav1.PartialObjectMetadata{}); renewed.tally(inventory, true).view != renewed {
		t.Error("the outcomes are those of the former namespace")
	}
}

// TestReadySince: only a population whose manifests can be applied has a time.
func TestReadySince(t *testing.T) {
	for status, want := range map[metav1.ConditionStatus]time.Time{metav1.ConditionTrue: start(), metav1.ConditionFalse: {}} {
		p := &v1alpha1.NamespacePopulation{Status: v1alpha1.NamespacePopulationStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, LastTransitionTime: metav1.NewTime(start())}}}}
		if got := readySince(p); !got.Equal(want) {
			t.Errorf("%s: %s", status, got)
		}
	}
}
