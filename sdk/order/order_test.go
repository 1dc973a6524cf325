/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package order

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// parse returns a plan: "a b: c:a,b d!" has a, which waits for all before it, b, which waits for none, c, which waits for
// a and b, and d, which all others wait for.
func parse(plan string) (entries []Entry) {
	for field := range strings.FieldsSeq(plan) {
		name, after, ordered := strings.Cut(field, ":")
		entry := Entry{Name: strings.TrimSuffix(name, "!"), First: strings.HasSuffix(name, "!"), Ordered: ordered}
		if after != "" {
			entry.After = strings.Split(after, ",")
		}
		entries = append(entries, entry)
	}
	return entries
}

func TestOrder(t *testing.T) {
	for name, test := range map[string]struct{ plan, pending, current, entry, predecessors string }{
		"the order of the plan":        {"a b c", "a b c", "a", "c", "a b"},
		"the second one":               {"a b c", "b c", "b", "b", "a"},
		"immediately":                  {"a: b: c:", "a b c", "a b c", "c", ""},
		"after one":                    {"a: b: c:b", "a b c", "a b", "c", "b"},
		"after one that is done":       {"a: b: c:b", "a c", "a c", "a", ""},
		"after a later one":            {"a:c b: c:", "a b c", "b c", "a", "c"},
		"after one out of the plan":    {"a:x b:", "a b", "a b", "a", ""},
		"after itself":                 {"a:a b:", "a b", "a b", "a", ""},
		"some without an order":        {"a: b c:", "a b c", "a c", "b", "a"},
		"the built-in one comes first": {"l! a: b:a c", "l a b c", "l", "a", "l"},
		"after the built-in one":       {"l! a: b:a c", "a b c", "a", "b", "l a"},
		"the built-in one waits not":   {"a l!", "a l", "l", "l", ""},
		"unknown":                      {"a", "a", "a", "x", ""},
		"none":                         {"a b", "", "", "b", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := parse(test.plan)
			if got := strings.Join(Current(plan, strings.Fields(test.pending)), " "); got != test.current {
				t.Errorf("current: %q, want %q", got, test.current)
			}
			if got := strings.Join(Predecessors(plan, test.entry), " "); got != test.predecessors {
				t.Errorf("predecessors: %q, want %q", got, test.predecessors)
			}
		})
	}
}

func TestCycle(t *testing.T) {
	for name, test := range map[string]struct{ plan, cycle, explained, without, names string }{
		"none":                {plan: "a b:a c:", without: "a b:a c:"},
		"a later one":         {plan: "a:b b:", without: "a:b b:"},
		"two name each other": {"a:b b:a", "a b", `"a" waits for "b", "b" waits for "a"`, "a: b:a", "a b"},
		"one has no ordering": {"a:b b", "a b", `"a" waits for "b", "b" has no ordering and so waits for "a"`, "a: b", "a b"},
		"three":               {"a:c b:a c:b", "a c b", `"a" waits for "c", "c" waits for "b", "b" waits for "a"`, "a: b:a c:b", "a b c"},
		"two cycles":          {"a:d b:c c:b d:e e:a", "b c", `"b" waits for "c", "c" waits for "b"`, "a: b: c:b d: e:a", "a b c d e"},
		"others stay":         {"x:y a:b,y b:a y:", "a b", `"a" waits for "b", "b" waits for "a"`, "x:y a:y b:a y:", "a b"},
		"the built-in one":    {plan: "a:l l!", without: "a:l l!"},
		"itself":              {plan: "a:a", without: "a:a"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := parse(test.plan)
			cycle := Cycle(plan)
			if got := strings.Join(cycle, " "); got != test.cycle {
				t.Errorf("the cycle is %q, want %q", got, test.cycle)
			}
			if got := Explain(plan, cycle); cycle != nil && got != "the initializers wait for each other: "+test.explained {
				t.Error(got)
			}
			without, names := WithoutCycles(plan)
			for i := range without {
				without[i].After = append([]string(nil), without[i].After...) // nil if it is empty
			}
			if diff := cmp.Diff(parse(test.without), without); diff != "" {
				t.Errorf("without cycles (-want +got):\n%s", diff)
			}
			if got := strings.Join(names, " "); got != test.names {
				t.Errorf("the names are %q, want %q", got, test.names)
			}
		})
	}
}

// drawPlan returns any plan of distinct names.
func drawPlan(t *rapid.T) []Entry {
	names := strings.Split("abcdefgh", "")[:rapid.IntRange(0, 8).Draw(t, "entries")]
	var plan []Entry
	for i, name := range names {
		entry := Entry{Name: name, First: i == 0 && rapid.Bool().Draw(t, "built-in"), Ordered: rapid.IntRange(0, 3).Draw(t, "ordered") > 0}
		if entry.Ordered {
			entry.After = rapid.SliceOfNDistinct(rapid.SampledFrom(append(names, "x")), 0, 3, rapid.ID).Draw(t, "after")
		}
		plan = append(plan, entry)
	}
	return plan
}

// ready returns the pending entries without a pending predecessor: the definition of Current.
func ready(plan []Entry, pending []string) (names []string) {
	for _, name := range pending {
		if !slices.ContainsFunc(Predecessors(plan, name), func(p string) bool { return slices.Contains(pending, p) }) {
			names = append(names, name)
		}
	}
	return names
}

func namesOf(plan []Entry) (names []string) {
	for _, entry := range plan {
		names = append(names, entry.Name)
	}
	return names
}

// TestAnyOrder: initializers of any plan finish in any order. None is current before all that it waits for have finished, and
// all finish. Without an ordering, they act one by one.
func TestAnyOrder(t *testing.T) { rapid.Check(t, anyOrder) }

func FuzzAnyOrder(f *testing.F) { f.Fuzz(rapid.MakeFuzz(anyOrder)) }

func anyOrder(t *rapid.T) {
	plan, _ := WithoutCycles(drawPlan(t))
	serial := !slices.ContainsFunc(plan, func(e Entry) bool { return e.Ordered })
	pending := namesOf(plan)
	var finished []string
	for len(pending) > 0 {
		current := Current(plan, pending)
		if diff := cmp.Diff(ready(plan, pending), current); diff != "" {
			t.Fatalf("%+v: current of %q (-want +got):\n%s", plan, pending, diff)
		}
		if len(current) == 0 || serial && (len(current) != 1 || current[0] != pending[0]) {
			t.Fatalf("%+v: of %q, the current ones are %q", plan, pending, current)
		}
		name := rapid.SampledFrom(current).Draw(t, "finishes")
		for _, predecessor := range Predecessors(plan, name) {
			if !slices.Contains(finished, predecessor) {
				t.Fatalf("%+v: %q acts before %q", plan, name, predecessor)
			}
		}
		finished = append(finished, name)
		pending = slices.DeleteFunc(pending, func(p string) bool { return p == name })
	}
	if len(finished) != len(plan) {
		t.Fatalf("%+v: only %q acted", plan, finished)
	}
}

// TestAnyCycle: Cycle returns a cycle exactly if there is one, and WithoutCycles removes only what is in a cycle.
func TestAnyCycle(t *testing.T) {
	cycles := 0
	rapid.Check(t, func(t *rapid.T) { cycles += anyCycle(t) })
	if cycles == 0 {
		t.Error("no plan had a cycle")
	}
}

func FuzzAnyCycle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { anyCycle(t) })) }

// anyCycle returns how many entries were in a cycle.
func anyCycle(t *rapid.T) (cycles int) {
	plan := drawPlan(t)
	cycle := Cycle(plan)
	stuck := namesOf(plan)
	for len(ready(plan, stuck)) > 0 {
		acts := ready(plan, stuck)
		stuck = slices.DeleteFunc(stuck, func(name string) bool { return slices.Contains(acts, name) })
	}
	if (cycle == nil) != (len(stuck) == 0) {
		t.Fatalf("%+v: the cycle is %q, and %q wait for each other", plan, cycle, stuck)
	}
	for i, name := range cycle {
		if next := cycle[(i+1)%len(cycle)]; !slices.Contains(Predecessors(plan, name), next) {
			t.Fatalf("%+v: the cycle is %q, and %q does not wait for %q", plan, cycle, name, next)
		}
	}
	if cycle != nil && slices.Index(namesOf(plan), cycle[0]) > slices.Index(namesOf(plan), cycle[1]) {
		t.Fatalf("%+v: the cycle %q does not begin with one that waits for a later one", plan, cycle)
	}
	without, names := WithoutCycles(plan)
	if again := Cycle(without); again != nil {
		t.Fatalf("%+v became %+v, which has the cycle %q", plan, without, again)
	}
	for _, name := range cycle {
		if !slices.Contains(names, name) {
			t.Fatalf("%+v: %q is in the cycle %q, and not in %q", plan, name, cycle, names)
		}
	}
	for i, entry := range without {
		if slices.Contains(names, entry.Name) {
			cycles++
			entry.After = nil
			for _, name := range plan[i].After { // all but later ones in a cycle
				if slices.Contains(without[i].After, name) || !slices.Contains(names, name) || slices.Index(namesOf(plan), name) < i {
					entry.After = append(entry.After, name)
				}
			}
			without[i].After = append([]string(nil), without[i].After...)
		}
		if diff := cmp.Diff(entry, without[i]); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", plan, diff)
		}
	}
	return cycles
}
