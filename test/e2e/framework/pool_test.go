/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"slices"
	"testing"
)

// TestPool: a test gets a control plane that no other test has, one that runs if there is one.
func TestPool(t *testing.T) {
	t.Setenv(dirVariable, "/state")
	t.Setenv(planesVariable, "3")
	p := newPool()
	var dirs []string
	var taken []*plane
	for range 3 {
		one := p.take()
		dirs, taken = append(dirs, one.dir), append(taken, one)
	}
	if want := []string{"/state", "/state-2", "/state-3"}; !slices.Equal(dirs, want) || !taken[0].running || taken[1].running {
		t.Errorf("taken were %q, want %q, of which the first runs", dirs, want)
	}
	waiting := make(chan *plane)
	go func() { waiting <- p.take() }()
	p.give(taken[1])
	if got := <-waiting; got != taken[1] {
		t.Errorf("got %q, which is in use", got.dir)
	}
	p.give(taken[2])
	p.give(taken[0])
	if got := p.take(); got != taken[0] {
		t.Errorf("got %q, which does not run", got.dir)
	}
}
