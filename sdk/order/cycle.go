/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package order

import (
	"fmt"
	"slices"
	"strings"
)

// Cycle returns the names of entries that wait for each other: each for the next one, and the last one for the first
// one. The second one comes after the first one in the plan. It is one of the shortest cycles, and nil if there is none.
func Cycle(plan []Entry) []string {
	var shortest []string
	for _, i := range waitForLater(plan) { // first the entry of a cycle that comes first in the plan
		from := reach(plan, i)
		if from[i] < 0 {
			continue
		}
		cycle := []string{plan[i].Name}
		for at := from[i]; at != i; at = from[at] {
			cycle = append(cycle, plan[at].Name)
		}
		if slices.Reverse(cycle[1:]); shortest == nil || len(cycle) < len(shortest) {
			shortest = cycle
		}
	}
	return shortest
}

// Explain describes a cycle: what each of its entries waits for, and why.
func Explain(plan []Entry, cycle []string) string {
	var parts []string
	for i, name := range cycle {
		reason := "waits"
		if ordered := slices.ContainsFunc(plan, func(e Entry) bool { return e.Name == name && e.Ordered }); !ordered {
			reason = "has no ordering and so waits"
		}
		parts = append(parts, fmt.Sprintf("%q %s for %q", name, reason, cycle[(i+1)%len(cycle)]))
	}
	return "the initializers wait for each other: " + strings.Join(parts, ", ")
}

// WithoutCycles returns the plan without cycles, and the names of the entries that were in one. These do not wait for
// later entries that wait for them, so they act in the order of the plan.
func WithoutCycles(plan []Entry) ([]Entry, []string) {
	later := waitForLater(plan)
	if len(later) == 0 {
		return plan, nil
	}
	reachable := make([][]int, len(plan))
	for i := range plan {
		reachable[i] = reach(plan, i)
	}
	inCycle := func(i, j int) bool { return reachable[i][j] >= 0 && reachable[j][i] >= 0 }
	result := slices.Clone(plan)
	var names []string
	for i, entry := range plan {
		if reachable[i][i] < 0 {
			continue
		}
		names = append(names, entry.Name)
		result[i].After = slices.DeleteFunc(slices.Clone(entry.After), func(name string) bool {
			j := slices.IndexFunc(plan, func(e Entry) bool { return e.Name == name })
			return j > i && inCycle(i, j)
		})
	}
	return result, names
}

// waitForLater returns the entries that wait for a later one, other than the entries that are first. Each cycle has one.
func waitForLater(plan []Entry) []int {
	place := make(map[string]int, len(plan))
	for i, entry := range plan {
		place[entry.Name] = i
	}
	var later []int
	for i, entry := range plan {
		if entry.Ordered && slices.ContainsFunc(entry.After, func(name string) bool { return place[name] > i }) {
			later = append(later, i)
		}
	}
	return later
}

// reach returns, for each entry, from which one it is reached on a shortest way from entry i along the entries that
// each waits for, or -1 if it is not reached. Entry i itself is reached only if it is in a cycle.
func reach(plan []Entry, i int) []int {
	from := slices.Repeat([]int{-1}, len(plan))
	for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
		for j := range plan {
			if from[j] < 0 && waits(plan, queue[0], j) {
				from[j] = queue[0]
				queue = append(queue, j)
			}
		}
	}
	return from
}
