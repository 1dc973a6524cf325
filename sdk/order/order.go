/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package order decides which initializers of a plan act at the same time, and which wait for others.
package order

import (
	"slices"
)

// Entry is the place of one initializer in the order of a plan.
type Entry struct {
	// Name is the name of the initializer.
	Name string
	// First says that all other entries wait for this one.
	First bool
	// Ordered says that the initializer waits for the entries in After. Otherwise, it waits for all entries before
	// it.
	Ordered bool
	// After names entries. Names that are not in the plan, and its own, have no effect.
	After []string
}

// Predecessors returns the names of the entries that must finish before one acts, in the order of the plan. They
// include no predecessors of predecessors, unless the entry names them or comes after them without an order.
func Predecessors(plan []Entry, name string) []string {
	i := slices.IndexFunc(plan, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	var names []string
	for j, other := range plan {
		if waits(plan, i, j) {
			names = append(names, other.Name)
		}
	}
	return names
}

// waits returns whether entry i waits for entry j.
func waits(plan []Entry, i, j int) bool {
	switch {
	case i == j || plan[i].First:
		return false
	case plan[j].First:
		return true
	case plan[i].Ordered:
		return slices.Contains(plan[i].After, plan[j].Name)
	}
	return j < i
}

// Current returns the pending names for which no predecessor is pending, in the order of the plan. If the plan has no
// cycle, there is at least one while any name of the plan is pending.
func Current(plan []Entry, pending []string) []string {
	waiting := make(map[string]bool, len(pending))
	for _, name := range pending {
		waiting[name] = true
	}
	first := slices.ContainsFunc(plan, func(e Entry) bool { return e.First && waiting[e.Name] })
	var current []string
	before := false // an entry before is pending
	for _, entry := range plan {
		if !waiting[entry.Name] {
			continue
		}
		waits := first || before
		if !first && entry.Ordered {
			waits = slices.ContainsFunc(entry.After, func(name string) bool { return name != entry.Name && waiting[name] })
		}
		if entry.First || !waits {
			current = append(current, entry.Name)
		}
		before = true
	}
	return current
}
