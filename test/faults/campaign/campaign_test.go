/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
	"github.com/nsinit/nsinit/test/faults/history"
)

// TestResume: an interrupted campaign resumes, and each fault reaches its number.
func TestResume(t *testing.T) {
	p := &plane{}
	ctx, interrupt := context.WithCancel(t.Context())
	rounds := 0
	r := newRunner(t, p, func(round *Round, _ context.Context, _ fault.Topology) (*Outcome, error) {
		if rounds++; rounds == 3 {
			interrupt()
			return nil, context.Canceled
		}
		return &Outcome{Injections: round.Injections, Recovery: time.Second, History: &history.History{}}, nil
	})
	if err := r.run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ended with %v", err)
	}
	again := newRunner(t, p, r.one)
	again.Dir = r.Dir
	again.Commit = "of other programs"
	if err := again.run(t.Context()); err == nil || !strings.Contains(err.Error(), "remove it to start a new campaign") {
		t.Errorf("the results of two commits: %v", err)
	}
	again.Commit = r.Commit
	if err := again.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := Load(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, result := range state.Results {
		if result.Injections != 10 || result.Rounds != 3 {
			t.Errorf("%s: %d injections in %d rounds", name, result.Injections, result.Rounds)
		}
	}
	// Two faults, three rounds each, and one that was interrupted.
	if len(state.Results) != 2 || rounds != 7 || p.starts != 2 || p.downs != 2 {
		t.Errorf("%d faults, %d rounds, %d starts, %d downs", len(state.Results), rounds, p.starts, p.downs)
	}
}

// TestViolation: a violation is stored with its history, the control plane is replaced, and the campaign
// continues and fails at its end.
func TestViolation(t *testing.T) {
	p := &plane{}
	rounds := 0
	r := newRunner(t, p, func(round *Round, _ context.Context, _ fault.Topology) (*Outcome, error) {
		outcome := &Outcome{Injections: round.Injections, History: &history.History{Marks: []history.Mark{{Name: history.MarkQuiet}}}}
		if rounds++; rounds == 1 {
			outcome.Violations = []check.Violation{{Check: "I1", Namespace: "f-1", Message: "early"}}
		}
		return outcome, nil
	})
	err := r.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "1 violations") {
		t.Errorf("it ended with %v", err)
	}
	if p.starts != 2 || rounds != 6 {
		t.Errorf("%d starts, %d rounds", p.starts, rounds)
	}
	for _, result := range r.state.Results {
		for _, file := range result.Histories {
			if h, err := history.Load(filepath.Join(r.Dir, file)); err != nil || len(h.Marks) != 1 {
				t.Errorf("the history: %v, %v", h, err)
			}
		}
	}
}

// TestNotJudged: rounds that cannot be judged do not count, and several of them end a fault.
func TestNotJudged(t *testing.T) {
	r := newRunner(t, &plane{}, func(*Round, context.Context, fault.Topology) (*Outcome, error) {
		return nil, errors.New("changes were lost")
	})
	err := r.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "changes were lost") {
		t.Errorf("it ended with %v", err)
	}
	for _, result := range r.state.Results {
		if result.Injections != 0 || len(result.Errors) != maxErrors {
			t.Errorf("%+v", result)
		}
	}
}

// TestRoundEnds: a round that does not end by itself is not judged.
func TestRoundEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, &plane{}, func(_ *Round, ctx context.Context, _ fault.Topology) (*Outcome, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "did not end within 30m0s") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestNotHealed: a fault that does not heal ends the round, also where it was not injected completely.
func TestNotHealed(t *testing.T) {
	refused := func(context.Context) error { return errors.New("it does not take it") }
	for name, injected := range map[string]error{"after an injection": nil, "after half of one": errors.New("one of two programs failed")} {
		t.Run(name, func(t *testing.T) {
			f := &fault.Fault{Inject: func(context.Context, *fault.Env) (func(context.Context) error, error) { return refused, injected }}
			r := &running{Round: &Round{Fault: f, Injections: 10}, recorder: history.NewRecorder()}
			if err := r.inject(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be healed: it does not take it") {
				t.Errorf("it ended with %v", err)
			}
			if marks := r.recorder.History().Marks; len(marks) != 1 || (marks[0].Error != "") != (injected != nil) {
				t.Errorf("the marks: %+v", marks)
			}
		})
	}
}

// TestReport: every number of the report is one of the state.
func TestReport(t *testing.T) {
	tested := fault.All()[0]
	state := &State{Commit: "def5678-dirty", Earlier: "fed9876", Rounds: 3, Results: map[string]*Result{tested.Name: {
		Fault: tested.Name, Rounds: 3, Injections: 123, Operations: 45678, Namespaces: 321, Recovery: 12345 * time.Millisecond,
		Violations: []check.Violation{{Check: "I1"}},
	}}}
	var text strings.Builder
	if err := state.Report(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"programs of commit def5678-dirty, and", "is that of commit fed9876", "| " + tested.Title() + " | 123 | 321 | 45678 | 1 | 12.3 s |", "| **all** | 123 | 321 | 45678 | 1 | 12.3 s |",
		"| " + fault.All()[1].Title() + " | 0 |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func newRunner(t *testing.T, p *plane, one func(*Round, context.Context, fault.Topology) (*Outcome, error)) *runner {
	t.Helper()
	return &runner{Options: Options{
		Dir: t.TempDir(), Start: func(context.Context, int) (Plane, error) { p.starts++; return p, nil },
		Only: regexp.MustCompile("^flapping|^hanging webhook before"), Injections: 10, PerRound: 4,
	}, one: one}
}

// plane is a fake control plane that can only be stopped.
type plane struct {
	fault.Topology
	starts, downs int
}

func (p *plane) Down(context.Context) error                   { p.downs++; return nil }
func (p *plane) Heal(context.Context) error                   { return nil }
func (p *plane) Logs(int) string                              { return "" }
func (p *plane) Programs() []string                           { return nil }
func (p *plane) Links() []string                              { return nil }
func (p *plane) Servers() []*rest.Config                      { return nil }
func (p *plane) Etcd(history.Store) (*clientv3.Client, error) { return nil, os.ErrNotExist }
