/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import "sigs.k8s.io/structured-merge-diff/v6/fieldpath"

// PartOf returns the name of the part to which a field belongs, or nothing.
func (k *Kind[T]) PartOf(path fieldpath.Path) string {
	name, longest := "", 0
	for _, part := range k.Parts {
		if d := part.Depth(path); d > longest {
			name, longest = part.Name, d
		}
	}
	return name
}

// Depth returns the length of the longest field of the part that leads to a path.
func (p *Part[T]) Depth(path fieldpath.Path) int {
	longest := 0
	for _, name := range p.fields() {
		longest = max(longest, depth(name, path))
	}
	return longest
}
