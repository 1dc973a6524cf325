/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
)

// Options describe a campaign.
type Options struct {
	// Dir is where state and histories are kept.
	Dir string
	// Start starts a control plane, which the campaign stops. It is called again after a round that
	// found a violation or could not be judged.
	Start func(ctx context.Context, number int) (Plane, error)
	// Planes is how many control planes run at a time, at least one.
	Planes int
	// Only selects faults by their names.
	Only *regexp.Regexp
	// Injections is the number for each fault, PerRound that of a round.
	Injections, PerRound int
	Slots                int
	Rate                 float64
	// Recreate lets tenants use names again, except during faults that expose name reuse. StrictNameReuse means that
	// the component is installed, so that tenants may use names again during these faults, too.
	Recreate, StrictNameReuse bool
	// Commit is the commit of the source of the tested programs.
	Commit string
	// Earlier is that of the earlier version, or empty if there is none.
	Earlier string
	// Seed is added to the seed of each round, which is its number.
	Seed uint64
	// Slack is added to each bound of time, because other work slows the machine down.
	Slack time.Duration
	// StopAtViolation ends the campaign with the first round that finds a violation.
	StopAtViolation bool
}

// Plane is a control plane that can be stopped.
type Plane interface {
	fault.Topology
	Down(ctx context.Context) error
	// Heal starts every program and heals every link.
	Heal(ctx context.Context) error
	// Logs returns the last lines of the programs' logs.
	Logs(lines int) string
}

// maxErrors is the number of failed rounds after which a fault is skipped.
const maxErrors = 5

// runner is a campaign that runs.
type runner struct {
	Options
	// one runs one round.
	one func(*Round, context.Context, fault.Topology) (*Outcome, error)

	mu    sync.Mutex
	state *State
	// faults are those that remain; taken are the names of those that a lane works on.
	faults []fault.Fault
	taken  sets.Set[string]
}

// lane runs one round after the other on a separate control plane.
type lane struct {
	*runner
	number int
	plane  Plane
}

// Run runs a campaign to its end, or until the context ends. It resumes a former one in the same
// directory. It returns an error if a fault has violations or could not be judged.
func Run(ctx context.Context, options Options) error {
	r := &runner{Options: options, one: (*Round).Run}
	return r.run(ctx)
}

func (r *runner) run(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	if r.state, err = Load(r.Dir); err != nil {
		return err
	}
	if r.state.Rounds == 0 {
		r.state.Commit, r.state.Earlier = r.Commit, r.Earlier
	}
	if r.state.Commit != r.Commit || r.state.Earlier != r.Earlier {
		return fmt.Errorf("%s has results of commit %q beside an earlier version of commit %q, not of %q beside %q: remove it to start a new campaign",
			filepath.Join(r.Dir, stateFile), r.state.Commit, r.state.Earlier, r.Commit, r.Earlier)
	}
	first := &lane{runner: r}
	if err := first.up(ctx); err != nil {
		return err
	}
	faults, err := r.selected(first.plane)
	if err != nil {
		return errors.Join(err, first.down(ctx))
	}
	r.faults, r.taken = slices.Clone(faults), sets.New[string]()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var lanes sync.WaitGroup
	for number := range max(1, r.Planes) {
		l := first
		if number > 0 {
			l = &lane{runner: r, number: number}
		}
		lanes.Go(func() {
			if err := errors.Join(l.run(ctx), l.down(ctx)); err != nil {
				cancel(err)
			}
		})
	}
	lanes.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return r.conclusion(faults)
}

// next returns a remaining fault that no other lane works on, or nil. It alternates between the faults, so that an
// interrupted campaign has covered all of them.
func (r *runner) next() *fault.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = slices.DeleteFunc(r.faults, func(f fault.Fault) bool {
		result := r.state.Of(f.Name)
		return result.Injections >= r.Injections || len(result.Errors) >= maxErrors
	})
	if r.StopAtViolation && slices.ContainsFunc(slices.Collect(maps.Values(r.state.Results)), func(r *Result) bool { return len(r.Violations) > 0 }) {
		return nil
	}
	i := slices.IndexFunc(r.faults, func(f fault.Fault) bool { return !r.taken.Has(f.Name) })
	if i < 0 {
		return nil
	}
	f := r.faults[i]
	r.taken.Insert(f.Name)
	r.faults = append(slices.Delete(r.faults, i, i+1), f)
	return &f
}

func (l *lane) run(ctx context.Context) error {
	for {
		f := l.next()
		if f == nil {
			return nil
		}
		if err := l.round(ctx, f); err != nil {
			return err
		}
	}
}

// selected returns the faults that are selected and that the control plane can have.
func (r *runner) selected(plane Plane) ([]fault.Fault, error) {
	var all []fault.Fault
	for _, f := range fault.All() {
		if r.Only != nil && !r.Only.MatchString(f.Name) {
			continue
		}
		if !f.Can(plane) {
			fmt.Printf("left out, this control plane cannot have it: %s\n", f.Name)
			continue
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, errors.New("no fault is selected")
	}
	return all, nil
}

func (l *lane) up(ctx context.Context) error {
	if l.plane != nil {
		return nil
	}
	plane, err := l.Start(ctx, l.number)
	if err == nil { // what comes with an error is not nil as an interface
		l.plane = plane
	}
	return err
}

func (l *lane) down(ctx context.Context) error {
	if l.plane == nil {
		return nil
	}
	plane := l.plane
	l.plane = nil
	return plane.Down(context.WithoutCancel(ctx))
}

// round runs one round, and stores its outcome.
func (l *lane) round(ctx context.Context, f *fault.Fault) error {
	if err := l.up(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	result := l.state.Of(f.Name)
	l.state.Rounds++
	round := &Round{
		Fault: f, Injections: min(l.PerRound, l.Injections-result.Injections), Number: l.state.Rounds,
		Seed: l.Seed, Slots: l.Slots, Rate: l.Rate, Recreate: l.Recreate && !f.NameReuse || l.StrictNameReuse, Slack: l.Slack,
	}
	l.mu.Unlock()
	began := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, roundBound, fmt.Errorf("the round did not end within %s", roundBound))
	defer cancel()
	err := l.plane.Heal(bounded)
	var outcome *Outcome
	if err == nil {
		outcome, err = l.one(round, bounded, l.plane)
	}
	if bounded.Err() != nil {
		err = errors.Join(context.Cause(bounded), err)
	}
	if ctx.Err() != nil {
		return ctx.Err() // it is made again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken.Delete(f.Name)
	result.Duration += time.Since(began)
	if err != nil {
		result.Errors = append(result.Errors, fmt.Sprintf("round %d: %v", round.Number, err))
		fmt.Printf("round %d, %s: NOT JUDGED: %v\n", round.Number, f.Name, err)
		return errors.Join(l.keepLogs(round), l.state.Save(l.Dir), l.down(ctx))
	}
	result.Rounds++
	result.Injections += outcome.Injections
	result.Operations += len(outcome.History.Operations)
	result.Namespaces += outcome.Namespaces
	result.Recovery = max(result.Recovery, outcome.Recovery)
	l.progress(round, outcome, time.Since(began))
	if len(outcome.Violations) > 0 {
		if err := errors.Join(l.keep(result, round, outcome), l.keepLogs(round), l.down(ctx)); err != nil {
			return err
		}
	}
	return l.state.Save(l.Dir)
}

// keepLogs stores the end of every program's log. A slice also prints it: the files of a test run are often gone afterwards.
func (l *lane) keepLogs(round *Round) error {
	if l.Slack == sliceSlack {
		fmt.Println(l.plane.Logs(12))
	}
	return os.WriteFile(filepath.Join(l.Dir, fmt.Sprintf("round-%04d.log", round.Number)), []byte(l.plane.Logs(2000)), 0o600)
}

// keep stores the history of a round that found violations.
func (r *runner) keep(result *Result, round *Round, outcome *Outcome) error {
	for _, violation := range outcome.Violations {
		fmt.Println("  VIOLATION", violation)
	}
	file := fmt.Sprintf("round-%04d.jsonl", round.Number)
	if err := outcome.History.Save(filepath.Join(r.Dir, file)); err != nil {
		return err
	}
	result.Violations = append(result.Violations, outcome.Violations...)
	result.Histories = append(result.Histories, file)
	return nil
}

// progress prints a line for a round, with the remaining number.
func (l *lane) progress(round *Round, outcome *Outcome, took time.Duration) {
	line := fmt.Sprintf("round %d, %s: %d injections, %d operations, %d namespaces, recovered in %s, %d violations, %s",
		round.Number, round.Fault.Name, outcome.Injections, len(outcome.History.Operations), outcome.Namespaces,
		outcome.Recovery.Round(100*time.Millisecond), len(outcome.Violations), took.Round(time.Second))
	if _, err := fault.Find(round.Fault.Name); err != nil { // a slice has one round
		fmt.Println(line)
		return
	}
	injected, wanted := 0, 0
	var spent time.Duration
	for _, f := range fault.All() {
		if (l.Only == nil || l.Only.MatchString(f.Name)) && (l.plane == nil || f.Can(l.plane)) {
			result := l.state.Of(f.Name)
			injected += min(result.Injections, l.Injections)
			wanted += l.Injections
			spent += result.Duration
		}
	}
	left := "?"
	if injected > 0 {
		left = (spent / time.Duration(injected*max(1, l.Planes)) * time.Duration(wanted-injected)).Round(time.Minute).String()
	}
	fmt.Printf("%s; %d of %d injections, about %s left\n", line, injected, wanted, left)
}

// conclusion returns the error of a campaign that is not clean.
func (r *runner) conclusion(faults []fault.Fault) error {
	var errs []error
	for _, f := range faults {
		result := r.state.Of(f.Name)
		if n := len(result.Violations); n > 0 {
			errs = append(errs, fmt.Errorf("%s: %d violations, see %v in %s", f.Name, n, result.Histories, r.Dir))
		}
		if result.Injections < r.Injections && len(result.Errors) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d of %d injections, the last error: %s", f.Name, result.Injections, r.Injections, result.Errors[len(result.Errors)-1]))
		}
	}
	return errors.Join(errs...)
}

// Slice runs one round of several faults, each at least once, and returns an error if it finds a
// violation. It keeps no state, and a history only of violations.
func Slice(ctx context.Context, options Options, faults []fault.Fault) (err error) {
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return err
	}
	options.Slack = sliceSlack
	r := &runner{Options: options, state: &State{Began: time.Now(), Results: map[string]*Result{}}, one: (*Round).Run, taken: sets.New[string]()}
	l := &lane{runner: r}
	if err := l.up(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.down(ctx)) }()
	mixed := fault.Mixed(faults, l.plane)
	if err := l.round(ctx, &mixed); err != nil {
		return err
	}
	return r.conclusion([]fault.Fault{mixed})
}

// Recheck returns the options by which a stored history is judged again.
func Recheck(options check.Options) check.Options {
	options.ReasonDelay = reasonDelay
	return options
}
