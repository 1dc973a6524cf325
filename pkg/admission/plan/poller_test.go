/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

type pollerTest struct {
	*Poller
	clock *testingclock.FakeClock
	list  func() ([]v1alpha1.NamespaceInitializerConfiguration, error)
	right error
}

func newPollerTest() *pollerTest {
	p := &pollerTest{clock: testingclock.NewFakeClock(time.Now())}
	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) { return listOf("one"), nil }
	p.Poller = NewPoller(nil, func(context.Context) error { return p.right }, p.clock)
	p.Poller.list = func(context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) { return p.list() }
	return p
}

func listOf(names ...string) []v1alpha1.NamespaceInitializerConfiguration {
	var all []v1alpha1.NamespaceInitializerConfiguration
	for _, name := range names {
		all = append(all, registered(name))
	}
	return all
}

func (p *pollerTest) check(t *testing.T, when string, want string, problem string) {
	t.Helper()
	items, err := p.Configurations()
	switch {
	case problem != "":
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want an error that says %q", when, err, problem)
		}
		if ready := p.Ready(); ready == nil || ready.Error() != err.Error() {
			t.Errorf("%s: readiness says %v", when, ready)
		}
	case err != nil:
		t.Errorf("%s: %v", when, err)
	case len(items) != 1 || items[0].Name != want:
		t.Errorf("%s: %v, want %s", when, items, want)
	case p.Ready() != nil:
		t.Errorf("%s: not ready: %v", when, p.Ready())
	}
}

// TestAge: a list is used for five seconds from its beginning, and not a moment longer.
func TestAge(t *testing.T) {
	ctx := t.Context()
	p := newPollerTest()
	p.check(t, "before the first", "", "never listed: the first list has not finished")
	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) {
		p.clock.Step(2 * time.Second) // it takes that long
		return listOf("one"), nil
	}
	p.poll(ctx)
	p.check(t, "after it", "one", "")

	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) { return nil, errors.New("no leader") }
	p.poll(ctx)
	p.check(t, "after a failure", "one", "")
	p.clock.Step(3 * time.Second)
	p.check(t, "after five seconds", "one", "")
	p.clock.Step(time.Millisecond)
	p.check(t, "after more", "", "5.001s ago, and a list may be 5s old: no leader")

	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) { return listOf("two"), nil }
	p.right = errors.New("the storage was lost")
	p.poll(ctx)
	p.check(t, "another storage", "", "the storage was lost")
	p.right = nil
	p.poll(ctx)
	p.check(t, "the right storage", "two", "")
	p.clock.Step(timing.MaxListAge + time.Second)
	p.check(t, "a list that hangs", "", "the next list is running")
}

// TestRun: there is a list in every second, and no others.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := newPollerTest()
	var lists atomic.Int32
	ok := make(chan struct{})
	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) {
		defer func() { ok <- struct{}{} }()
		if lists.Add(1) < 3 {
			return nil, errors.New("not yet")
		}
		return listOf("one"), nil
	}
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	waitFor := func(waiters int) {
		for p.clock.Waiters() < waiters { // the ticker, and the retry if there is one
			time.Sleep(time.Millisecond)
		}
	}
	for range 2 {
		<-ok
		waitFor(2)
		p.clock.Step(firstRetry)
	}
	<-ok
	p.clock.Step(Interval - 2*firstRetry - time.Millisecond)
	select {
	case <-ok:
		t.Error("a list before its time")
	case <-time.After(50 * time.Millisecond):
	}
	p.clock.Step(time.Millisecond)
	<-ok
	p.clock.Step(Interval)
	<-ok
	cancel()
	<-done
	if got := lists.Load(); got != 5 {
		t.Errorf("%d lists", got)
	}
}

// TestMetrics: the age is that of the moment at which it is asked for.
func TestMetrics(t *testing.T) {
	p := newPollerTest()
	registry := metrics.NewKubeRegistry()
	if err := p.Metrics().Register(registry); err != nil {
		t.Fatal(err)
	}
	age := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
			# HELP nsinit_configurations_list_age_seconds [ALPHA] Time since the last successful list of the configurations began, in seconds; infinite before the first. Above 5, NamespaceLifecycles cannot be created.
			# TYPE nsinit_configurations_list_age_seconds gauge
			nsinit_configurations_list_age_seconds `+want+"\n"), "nsinit_configurations_list_age_seconds"); err != nil {
			t.Error(err)
		}
	}
	age("+Inf")
	p.poll(t.Context())
	p.clock.Step(1500 * time.Millisecond)
	age("1.5")
	p.list = func() ([]v1alpha1.NamespaceInitializerConfiguration, error) { return nil, errors.New("no") }
	p.poll(t.Context())
	age("1.5")
}
