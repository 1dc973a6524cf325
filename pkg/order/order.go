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
	// After names entries. Names that are not in the plan have no effect.
	After []string
}

// Predecessors returns the names of the entries that must finish before one acts, in the order of the plan. They
// include no predecessors of predecessors, unless the entry names them or comes after them without an order.
func Predecessors(plan []Entry, name string) []string {
	i := slices.IndexFunc(plan, func(e Entry) bool { return e.Name == name })
	if i < 0 || plan[i].First {
		return nil
	}
	var names []string
	for j, other := range plan {
		if j == i {
			continue
		}
		if other.First || (plan[i].Ordered && slices.Contains(plan[i].After, other.Name)) || (!plan[i].Ordered && j < i) {
			names = append(names, other.Name)
		}
	}
	return names
}

// Current returns the pending names for which no predecessor is pending, in the order of pending. If the plan has no
// cycle, there is at least one while any name is pending.
func Current(plan []Entry, pending []string) []string {
	var current []string
	for _, name := range pending {
		waits := slices.ContainsFunc(Predecessors(plan, name), func(p string) bool { return slices.Contains(pending, p) })
		if !waits {
			current = append(current, name)
		}
	}
	return current
}
