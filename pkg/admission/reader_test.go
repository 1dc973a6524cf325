/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// store is a storage that the test controls.
type store struct {
	// revision is the one of the last write.
	revision int
	lists    int
	// list, if it is set, runs in each list, after the storage has evaluated it and before its answer arrives.
	list func(ctx context.Context) error
	// wrong is why the storage is not the one in use, or nil.
	wrong error
}

func (s *store) List(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	s.lists++
	revision := s.revision
	if s.list != nil {
		if err := s.list(ctx); err != nil {
			return nil, err
		}
	}
	return []v1alpha1.NamespaceInitializerConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(revision)}}}, nil
}

func (s *store) reader() *Reader { return s.readerWith(metrics.NewKubeRegistry()) }

// readerWith returns a Reader whose metrics are in a registry.
func (s *store) readerWith(registry metrics.KubeRegistry) *Reader {
	r, err := NewReader(s.List, func(context.Context) error { return s.wrong }, clock.RealClock{}, registry.Register)
	if err != nil {
		panic(err)
	}
	return r
}

// answer is what a caller got.
type answer struct {
	revision string
	err      error
}

// ask asks for the configurations in a goroutine.
func ask(ctx context.Context, r *Reader) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		items, err := r.Configurations(ctx)
		a := answer{err: err}
		for _, item := range items {
			a.revision += item.Name
		}
		answers <- a
	}()
	return answers
}

// takes makes each list last that long, or until its context ends.
func takes(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestShared: callers that arrive during a read share the next one, because the one in flight may have been
// answered before their writes.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{revision: 1, list: takes(10 * time.Millisecond)}
		r := s.reader()
		first := ask(t.Context(), r)
		synctest.Wait()
		s.revision = 2
		var later []<-chan answer
		for range 50 {
			later = append(later, ask(t.Context(), r))
		}
		if a := <-first; a.err != nil {
			t.Error(a.err)
		}
		for _, answers := range later {
			if a := <-answers; a.err != nil || a.revision != "2" {
				t.Errorf("a caller after the write got %+v", a)
			}
		}
		if s.lists != 2 {
			t.Errorf("%d lists for 51 callers, want 2", s.lists)
		}
	})
}

// TestErrors: what goes wrong in one read is for its callers only, and the next caller reads again.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		list  func(ctx context.Context) error
		wrong error
		want  string
		took  time.Duration
	}{
		"an error":             {list: func(context.Context) error { return errors.New("no leader") }, want: "cannot read the configurations: no leader"},
		"another storage":      {wrong: errors.New("the storage was lost"), want: "cannot read the configurations: the storage was lost"},
		"a panic":              {list: func(context.Context) error { panic("nil map") }, want: "the read of the configurations panicked: nil map"},
		"the end of a routine": {list: func(context.Context) error { runtime.Goexit(); return nil }, want: "the read of the configurations ended without a result"},
		"a read that hangs": {list: takes(time.Hour), took: readTimeout,
			want: "cannot read the configurations: etcd did not answer within 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{revision: 7, list: test.list, wrong: test.wrong}
				r := s.reader()
				began := time.Now()
				answers := []<-chan answer{ask(t.Context(), r), ask(t.Context(), r)}
				for _, got := range answers {
					if a := <-got; a.err == nil || a.err.Error() != test.want || a.revision != "" {
						t.Errorf("got %+v, want %q", a, test.want)
					}
				}
				if took := time.Since(began); took > 2*test.took {
					t.Errorf("it took %s", took)
				}
				if err := r.Ready(t.Context()); err == nil || err.Error() != test.want {
					t.Errorf("readiness: %v", err)
				}
				s.list, s.wrong = nil, nil
				if a := <-ask(t.Context(), r); a.err != nil || a.revision != "7" {
					t.Errorf("afterwards: %+v", a)
				}
				if err := r.Ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
	if 2*readTimeout >= timing.CreateTimeout {
		t.Error("a creation ends before its client gets the cause")
	}
}

// TestErrorIsNotShared: a caller that arrives during a read that fails gets the result of the next one.
func TestErrorIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{revision: 3}
		r := s.reader()
		s.list = func(ctx context.Context) error {
			s.list = nil
			return errors.Join(takes(time.Millisecond)(ctx), errors.New("no leader"))
		}
		first := ask(t.Context(), r)
		synctest.Wait()
		second := ask(t.Context(), r)
		if a := <-first; a.err == nil {
			t.Errorf("got %+v", a)
		}
		if a := <-second; a.err != nil || a.revision != "3" {
			t.Errorf("got %+v", a)
		}
	})
}

// TestCanceled: a caller leaves when its context ends. A read ends when its last caller has left, and a read
// that has not begun does not begin.
func TestCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{revision: 4, list: takes(time.Second)}
		r := s.reader()
		cause := errors.New("the client has gone")
		leaving, leave := context.WithCancelCause(t.Context())
		stays := ask(t.Context(), r)
		synctest.Wait()
		leaves := ask(leaving, r) // it waits for the next read
		synctest.Wait()
		leave(cause)
		if a := <-leaves; !errors.Is(a.err, cause) {
			t.Errorf("got %+v", a)
		}
		if a := <-stays; a.err != nil || a.revision != "4" {
			t.Errorf("the other caller got %+v", a)
		}
		synctest.Wait()
		if s.lists != 1 {
			t.Errorf("%d lists, want 1: only one caller is left", s.lists)
		}

		only, leave := context.WithCancelCause(t.Context())
		began := time.Now()
		left := ask(only, r)
		synctest.Wait()
		leave(cause)
		<-left
		synctest.Wait()
		if time.Since(began) > 0 {
			t.Error("the read continues without a caller")
		}
		if got, err := testutil.GetCounterMetricValue(r.failures); err != nil || got != 0 {
			t.Errorf("%g reads failed, %v, but their callers left", got, err)
		}
	})
}

// TestMetrics counts requests, reads and failures.
func TestMetrics(t *testing.T) {
	s := &store{}
	registry := metrics.NewKubeRegistry()
	r := s.readerWith(registry)
	_ = r.Ready(t.Context())
	s.wrong = errors.New("the storage was lost")
	_ = r.Ready(t.Context())
	_ = r.Ready(t.Context())
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP nsinit_configurations_read_failures_total [ALPHA] Number of consistent reads of the configurations that failed. nsinit-apiserver refused the NamespaceLifecycles that needed these reads.
		# TYPE nsinit_configurations_read_failures_total counter
		nsinit_configurations_read_failures_total 2
		# HELP nsinit_configurations_requests_total [ALPHA] Number of requests that needed the configurations. Requests that arrive during a read share the next read.
		# TYPE nsinit_configurations_requests_total counter
		nsinit_configurations_requests_total 3
	`), "nsinit_configurations_read_failures_total", "nsinit_configurations_requests_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if reads := family.GetMetric()[0].GetHistogram().GetSampleCount(); family.GetName() == "nsinit_configurations_read_duration_seconds" && reads != 1 {
			t.Errorf("%d reads succeeded", reads)
		}
	}
}
