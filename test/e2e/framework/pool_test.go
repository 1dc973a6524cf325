/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPool: some tests share the first control plane, others have one alone, preferably one that runs. The longest start
// first. The first control plane is for one test alone when no test shares it any more.
func TestPool(t *testing.T) {
	t.Setenv(dirVariable, "/one")
	t.Setenv(planesVariable, "3")
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		p.longest = []string{"Z"}
		tests := map[string]use{
			"A": alone, "B": alone, "C": starting, "D": alone, "Z/subtest": alone,
			"S1": sharing, "S2": sharing, "S3": sharing, "S4": sharing, "S5": sharing,
		}
		var mu sync.Mutex
		var started []string
		ends := map[string]chan struct{}{}
		requests := map[string]*request{}
		for _, name := range slices.Sorted(maps.Keys(tests)) {
			requests[name] = p.enter(name, tests[name])
		}
		for name, r := range requests {
			end := make(chan struct{})
			ends[name] = end
			go func() {
				taken := p.take(r)
				mu.Lock()
				started = append(started, name+" on "+taken.dir)
				mu.Unlock()
				<-end
				taken.running = taken.running || r.use == alone
				p.leave(r, taken)
			}()
		}
		for _, step := range []struct{ ended, started string }{
			{"", "A on /one-3, S1 on /one, S2 on /one, S3 on /one, S4 on /one, Z/subtest on /one-2"},
			{"Z/subtest", "B on /one-2"},
			{"A", "C on /one-3"},
			{"S1", "S5 on /one"},
			{"S2", ""},
			{"S3", ""},
			{"S4", ""},
			{"S5", "D on /one"},
			{"B", ""},
			{"C", ""},
			{"D", ""},
		} {
			if step.ended != "" {
				close(ends[step.ended])
			}
			for range tests { // one control plane starts after the other
				synctest.Wait()
				time.Sleep(startPause)
				p.changed.Broadcast()
			}
			synctest.Wait()
			slices.Sort(started)
			if got := strings.Join(started, ", "); got != step.started {
				t.Errorf("when %q had ended, %q started, want %q", step.ended, got, step.started)
			}
			started = nil
		}
		for _, name := range []string{"/one", "/one-2", "/one-3"} {
			if !slices.ContainsFunc(p.idle, func(one *plane) bool { return one.dir == name }) {
				t.Errorf("%s is not idle at the end", name)
			}
		}
	})
}

// TestPoolBusy: on a busy machine, two tests run at the same time.
func TestPoolBusy(t *testing.T) {
	t.Setenv(planesVariable, "1")
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		var taken atomic.Int64
		var requests []*request
		for range 3 {
			requests = append(requests, p.enter("A", sharing))
		}
		p.busy = true
		for _, r := range requests {
			go func() {
				p.take(r)
				taken.Add(1)
			}()
		}
		synctest.Wait()
		if taken.Load() != testsIfBusy {
			t.Errorf("%d tests run on a busy machine", taken.Load())
		}
		time.Sleep(startPause)
		p.mu.Lock()
		p.busy = false
		p.mu.Unlock()
		p.changed.Broadcast()
		synctest.Wait()
		if taken.Load() != 3 {
			t.Errorf("%d of 3 tests run", taken.Load())
		}
	})
}

// TestPoolPrefers: a test that has a control plane alone prefers one that runs, and a test that starts its own takes the
// place of one that does not.
func TestPoolPrefers(t *testing.T) {
	t.Setenv(dirVariable, "/one")
	t.Setenv(planesVariable, "2")
	for as, want := range map[use]string{alone: "/one", starting: "/one-2"} {
		p := newPool()
		p.all[0].running = true
		if got := p.take(p.enter("A", as)); got.dir != want {
			t.Errorf("it takes %s, want %s", got.dir, want)
		}
	}
}
