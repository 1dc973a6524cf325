/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// entryAs is an object of manifest m that was applied; it is a ConfigMap.
func entryAs(m, name string, change ...func(*v1alpha1.PopulatedObject)) v1alpha1.PopulatedObject {
	o := v1alpha1.PopulatedObject{Population: "p", Manifest: m, APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "u", PrunePolicy: v1alpha1.PruneDelete, State: v1alpha1.PopulatedObjectApplied}
	for _, c := range change {
		c(&o)
	}
	return o
}

func wantedAs(m, name string, change ...func(*Object)) Object {
	o := Object{Key: Key{Population: "p", Manifest: m}, DriftPolicy: v1alpha1.DriftIgnore, PrunePolicy: v1alpha1.PruneDelete,
		APIVersion: "v1", Identity: Identity{Kind: "ConfigMap", Name: name}, Content: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}}
	for _, c := range change {
		c(&o)
	}
	return o
}

func repair(o *Object) { o.DriftPolicy = v1alpha1.DriftRepair }
func broken(o *Object) {
	o.Content, o.Identity, o.APIVersion, o.Err = nil, Identity{}, "", errors.New("broken")
}

// later makes a population that is newer than the namespace.
func later(o *Object) { o.Population, o.isLater = "later", true }

func ofAll(o *Object) { o.Scope = v1alpha1.ScopeAll }
func hashed(hash string) func(*Object) {
	return func(o *Object) { o.Hash = hash }
}
func withHash(hash string) func(*v1alpha1.PopulatedObject) {
	return func(o *v1alpha1.PopulatedObject) { o.ContentHash = hash }
}
func orphan(o *v1alpha1.PopulatedObject) {
	o.PrunePolicy = v1alpha1.PruneOrphan
}
func ofOther(o *v1alpha1.PopulatedObject) { o.UID, o.State = "", v1alpha1.PopulatedObjectConflict }
func failed(o *v1alpha1.PopulatedObject)  { o.UID, o.State = "", v1alpha1.PopulatedObjectFailed }

// textOf describes a task.
func textOf(task Task) string {
	return fmt.Sprintf("%s %s %s %s", [...]string{"keep", "apply", "adopt", "report", "prune"}[task.Action], task.Entry.Manifest, task.Entry.Name, task.Entry.State)
}

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		known  []v1alpha1.PopulatedObject
		wanted []Object
		exists []string
		open   bool
		want   []string
	}{
		"a new namespace gets everything, in order": {wanted: []Object{wantedAs("b", "x"), wantedAs("a", "y", repair)}, exists: []string{"a", "b"},
			want: []string{"apply b x Pending", "apply a y Pending"}},
		"a known object is applied again": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "x")}, exists: []string{"a"},
			want: []string{"apply a x Applied"}},
		"in an open one, what is to follow": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y")},
			wanted: []Object{wantedAs("a", "x"), wantedAs("b", "y", repair), wantedAs("new", "z"), wantedAs("followed", "w", repair)}, exists: []string{"a", "b", "new", "followed"}, open: true,
			want: []string{"keep a x Applied", "apply b y Applied", "apply followed w Pending"}},
		"a manifest that is gone": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y", orphan)}, open: true,
			want: []string{"prune a x Applied"}},
		"a manifest that does not concern the namespace any more": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, exists: []string{"a"}, open: true,
			want: []string{"keep a x Applied"}},
		"another object of the same manifest": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "y", repair)}, exists: []string{"a"}, open: true,
			want: []string{"apply a y Pending", "prune a x Applied"}},
		"another one, and the old one is to stay": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", orphan)}, wanted: []Object{wantedAs("a", "y", repair)}, exists: []string{"a"}, open: true,
			want: []string{"apply a y Pending"}},
		"an object that moved to another manifest": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("b", "x", repair)}, exists: []string{"b"}, open: true,
			want: []string{"apply b x Pending"}},
		"with scope All, an object that moved to another manifest stays until the rollout": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("b", "x", repair, ofAll)}, exists: []string{"b"}, open: true,
			want: []string{"keep a x Applied"}},
		"and while the rollout fails": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "x", ofOther)}, wanted: []Object{wantedAs("b", "x", repair, ofAll)}, exists: []string{"b"}, open: true,
			want: []string{"keep b x Conflict", "keep a x Applied"}},
		"and is forgotten after it": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "x")}, wanted: []Object{wantedAs("b", "x", ofAll)}, exists: []string{"b"}, open: true,
			want: []string{"keep b x Applied"}},
		"and another object of the manifest goes": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("a", "y")}, wanted: []Object{wantedAs("b", "x", repair, ofAll)}, exists: []string{"b"}, open: true,
			want: []string{"keep a x Applied", "prune a y Applied"}},
		"and to one whose drift is ignored": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("b", "x")}, exists: []string{"b"}, open: true,
			want: []string{"keep a x Applied"}},
		"an object that another manifest keeps": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "x")}, exists: []string{"b"}, open: true,
			want: []string{"keep b x Applied"}},
		"a manifest that cannot be rendered": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "", broken), wantedAs("b", "", broken)}, exists: []string{"a", "b"},
			want: []string{"report a x Applied", "report b  "}},
		"one that could not be rendered before": {known: []v1alpha1.PopulatedObject{{Population: "p", Manifest: "a", State: v1alpha1.PopulatedObjectFailed}}, wanted: []Object{wantedAs("a", "x")}, exists: []string{"a"},
			want: []string{"apply a x Pending"}},
		"and is gone": {known: []v1alpha1.PopulatedObject{{Population: "p", Manifest: "a", State: v1alpha1.PopulatedObjectFailed}}},
		"with scope All, only what was applied is repaired": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y", ofOther), entryAs("c", "z", failed)}, exists: []string{"a", "b", "c", "d"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair, ofAll), wantedAs("b", "y", repair, ofAll), wantedAs("c", "z", repair, ofAll), wantedAs("d", "w", repair, ofAll)},
			want:   []string{"apply a x Applied", "keep b y Conflict", "keep c z Failed"}},
		"with scope All, what was rolled out is repaired, and a change is not": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1")), entryAs("b", "y", withHash("1"))}, exists: []string{"a", "b"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair, ofAll, hashed("1")), wantedAs("b", "y", repair, ofAll, hashed("2"))}, want: []string{"apply a x Applied", "keep b y Applied"}},
		"a population that is newer than the namespace": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "x"), wantedAs("b", "y", repair, later)}, exists: []string{"a", "b"}, open: true,
			want: []string{"keep a x Applied"}},
		"an object that moved to a population that is newer": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("b", "x", repair, later)}, exists: []string{"b"}, open: true,
			want: []string{"apply b x Pending"}},
		"with scope New, a change is applied": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1"))}, exists: []string{"a"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair, hashed("2"))}, want: []string{"apply a x Applied"}},
		"with scope All, a new namespace gets everything": {wanted: []Object{wantedAs("a", "x", ofAll)}, exists: []string{"a"}, want: []string{"apply a x Pending"}},
		"of two manifests of one object, the later one is repaired": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "x")}, exists: []string{"a", "b"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair), wantedAs("b", "x", repair)}, want: []string{"keep a x Applied", "apply b x Applied"}},
		"the later one is of a population that is newer than the namespace": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, exists: []string{"a"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair), wantedAs("b", "x", repair, later)}, want: []string{"apply a x Applied"}},
		"also if it is new": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, exists: []string{"a", "b"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair), wantedAs("b", "x", repair)}, want: []string{"keep a x Applied", "apply b x Pending"}},
		"the later one is the tenants'": {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "x")}, exists: []string{"a", "b"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair), wantedAs("b", "x")}, want: []string{"keep a x Applied", "keep b x Applied"}},
		"the later one was not applied": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, exists: []string{"a", "b", "c"}, open: true,
			wanted: []Object{wantedAs("a", "x", repair), wantedAs("b", "x"), wantedAs("c", "x", repair, ofAll)}, want: []string{"apply a x Applied"}},
		"an object of another client is not pruned": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", ofOther)}, open: true},
		"and forgotten with its label":              {known: []v1alpha1.PopulatedObject{entryAs("a", "x", ofOther)}, exists: []string{"a"}, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			mode := Initialize
			if test.open {
				mode = Repair
			}
			var got []string
			for _, task := range Plan(mode, "", []*Population{populationOf("p", "", test.exists...)}, test.wanted, test.known) {
				got = append(got, textOf(task))
				if task.Entry.State == v1alpha1.PopulatedObjectApplied && task.Entry.UID == "" {
					t.Errorf("the UID of %+v was forgotten", task.Entry)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// populationOf returns a population with manifests.
func populationOf(name string, scope v1alpha1.PopulationScopeType, manifests ...string) *Population {
	p := &Population{Name: name, Scope: scope}
	for _, m := range manifests {
		p.manifests = append(p.manifests, manifest{PopulationManifest: v1alpha1.PopulationManifest{Name: m}})
	}
	return p
}

// TestIgnored: an object that tenants may change now is rolled out again if its drift is to be repaired later.
func TestIgnored(t *testing.T) {
	known := []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1"), func(o *v1alpha1.PopulatedObject) { o.Message = "not ready" })}
	if tasks := Plan(Repair, "", nil, []Object{wantedAs("a", "x", ofAll)}, known); len(tasks) != 1 || tasks[0].Action != Keep || tasks[0].Entry.ContentHash != "" || tasks[0].Entry.Message != "" {
		t.Errorf("%+v", tasks)
	}
	if known[0].ContentHash != "1" {
		t.Error("the inventory was changed")
	}
}

// TestMoved: the inventory still knows an object that moved to another manifest, unless tenants could change it, or another manifest has it.
func TestMoved(t *testing.T) {
	for name, test := range map[string]struct {
		known  v1alpha1.PopulatedObject
		wanted []Object
		want   types.UID
	}{
		"moved":                   {known: entryAs("old", "x", withHash("1")), wanted: []Object{wantedAs("a", "x", repair)}, want: "u"},
		"its drift was ignored":   {known: entryAs("old", "x"), wanted: []Object{wantedAs("a", "x", repair)}},
		"its drift is ignored":    {known: entryAs("old", "x", withHash("1")), wanted: []Object{wantedAs("a", "x")}},
		"another manifest has it": {known: entryAs("old", "x", withHash("1")), wanted: []Object{wantedAs("a", "x", repair), wantedAs("old", "x")}},
		"another object":          {known: entryAs("old", "y", withHash("1")), wanted: []Object{wantedAs("a", "x", repair)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Plan(Initialize, "", nil, test.wanted, []v1alpha1.PopulatedObject{test.known})[0].Entry.UID; got != test.want {
				t.Errorf("the UID is %q", got)
			}
		})
	}
}

// TestLeaveToRollout: only the rollout deletes objects of a population with scope All.
func TestLeaveToRollout(t *testing.T) {
	in := func(population string) func(*v1alpha1.PopulatedObject) {
		return func(o *v1alpha1.PopulatedObject) { o.Population = population }
	}
	tasks := Plan(Repair, "", []*Population{populationOf("new", ""), populationOf("p", v1alpha1.ScopeAll)}, nil,
		[]v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y", in("new")), entryAs("c", "z", in("deleted"))})
	if tasks[0].Action != Keep || tasks[1].Action != Prune || tasks[2].Action != Prune {
		t.Errorf("%+v", tasks)
	}
}

// TestPlanRollout: a rollout adopts what the namespace does not have, applies what has changed, and deletes what has no manifest
// any more. It keeps everything else.
func TestPlanRollout(t *testing.T) {
	for name, test := range map[string]struct {
		known  []v1alpha1.PopulatedObject
		wanted []Object
		want   []string
	}{
		"nothing is known":              {wanted: []Object{wantedAs("b", "x"), wantedAs("a", "y", repair)}, want: []string{"adopt b x Pending", "adopt a y Pending"}},
		"an object that was applied":    {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "x")}, want: []string{"keep a x Applied"}},
		"after a crash":                 {known: []v1alpha1.PopulatedObject{entryAs("a", "x", func(o *v1alpha1.PopulatedObject) { o.UID, o.State = "", v1alpha1.PopulatedObjectPending })}, wanted: []Object{wantedAs("a", "x")}, want: []string{"adopt a x Pending"}},
		"a conflict":                    {known: []v1alpha1.PopulatedObject{entryAs("a", "x", ofOther)}, wanted: []Object{wantedAs("a", "x")}, want: []string{"adopt a x Conflict"}},
		"a conflict under another name": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", ofOther)}, wanted: []Object{wantedAs("a", "y")}, want: []string{"adopt a y Pending"}},
		"another name":                  {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "y")}, want: []string{"adopt a y Pending", "keep a x Applied"}},
		"another name, repaired":        {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1"))}, wanted: []Object{wantedAs("a", "y", repair, hashed("2")), wantedAs("b", "z")}, want: []string{"adopt a y Pending", "adopt b z Pending", "prune a x Applied"}},
		"a changed manifest":            {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1"))}, wanted: []Object{wantedAs("a", "x", repair, hashed("2"))}, want: []string{"apply a x Applied"}},
		"an unchanged one":              {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1"))}, wanted: []Object{wantedAs("a", "x", repair, hashed("1"))}, want: []string{"keep a x Applied"}},
		"a later manifest has it": {known: []v1alpha1.PopulatedObject{entryAs("a", "x", withHash("1")), entryAs("b", "x")}, wanted: []Object{wantedAs("a", "x", repair, hashed("2")), wantedAs("b", "x")},
			want: []string{"keep a x Applied", "keep b x Applied"}},
		"a removed manifest":           {known: []v1alpha1.PopulatedObject{entryAs("old", "x"), entryAs("a", "y")}, wanted: []Object{wantedAs("a", "y")}, want: []string{"keep a y Applied", "prune old x Applied"}},
		"whose object moved":           {known: []v1alpha1.PopulatedObject{entryAs("old", "x")}, wanted: []Object{wantedAs("a", "x")}, want: []string{"adopt a x Pending", "keep old x Applied"}},
		"whose object moved, repaired": {known: []v1alpha1.PopulatedObject{entryAs("old", "x", withHash("1"))}, wanted: []Object{wantedAs("a", "x", repair, hashed("2"))}, want: []string{"apply a x Pending"}},
		"of another population": {known: []v1alpha1.PopulatedObject{entryAs("old", "x")}, wanted: []Object{wantedAs("a", "x", func(o *Object) { o.Population = "q" }), wantedAs("b", "z")},
			want: []string{"adopt b z Pending", "keep old x Applied"}},
		"cannot be rendered":          {wanted: []Object{wantedAs("a", "", broken)}, want: []string{"report a  "}},
		"cannot be rendered any more": {known: []v1alpha1.PopulatedObject{entryAs("a", "x")}, wanted: []Object{wantedAs("a", "", broken)}, want: []string{"keep a x Applied"}},
		"of other manifests":          {known: []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y", failed)}, want: []string{"keep a x Applied", "keep b y Failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, task := range Plan(RollOut, "p", []*Population{populationOf("p", v1alpha1.ScopeAll, "a", "b")}, test.wanted, test.known) {
				got = append(got, textOf(task))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanPreview: a preview rolls out the objects of populations with scope All. Others are applied as to a new namespace.
func TestPlanPreview(t *testing.T) {
	var got []string
	inventory := []v1alpha1.PopulatedObject{entryAs("a", "x"), entryAs("b", "y"), entryAs("c", "z", withHash("1"))}
	wanted := []Object{wantedAs("a", "x"), wantedAs("b", "y", ofAll), wantedAs("c", "z", ofAll, repair, hashed("2")), wantedAs("d", "w", ofAll)}
	for _, task := range Plan(RollOut, "", []*Population{populationOf("p", v1alpha1.ScopeAll, "a", "b", "c", "d")}, wanted, inventory) {
		got = append(got, textOf(task))
	}
	if diff := cmp.Diff([]string{"apply a x Applied", "keep b y Applied", "apply c z Applied", "adopt d w Pending"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
