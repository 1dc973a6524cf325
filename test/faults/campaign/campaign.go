/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/fault"
)

// Options describe a campaign.
type Options struct {
	// Dir is where state and histories are kept.
	Dir string
	// Start starts a control plane, which the campaign stops. It is called again after a round that
	// found a violation, or could not be judged.
	Start func(ctx context.Context) (Plane, error)
	// Only selects faults by their names.
	Only *regexp.Regexp
	// Injections is the number for each fault, PerRound that of a round.
	Injections, PerRound int
	Slots                int
	Rate                 float64
	// Recreate lets tenants use names again, but for faults that expose it. StrictNameReuse says that the
	// component is installed, so that they may then, too.
	Recreate, StrictNameReuse bool
	PlanDelay                 time.Duration
	// Commit is that of the source of the programs that are tested.
	Commit string
	// StopAtViolation ends the campaign with the first round that finds a violation.
	StopAtViolation bool
}

// Plane is a control plane that can be stopped.
type Plane interface {
	fault.Topology
	Down(ctx context.Context) error
	// Heal makes everything run again.
	Heal(ctx context.Context) error
	// Logs returns the last lines of what the programs logged.
	Logs(lines int) string
}

// maxErrors is how many rounds of one fault may fail before it is left out.
const maxErrors = 5

// runner is a campaign that runs.
type runner struct {
	Options
	state *State
	plane Plane
	// one runs one round.
	one func(*Round, context.Context, fault.Topology) (*Outcome, error)
}

// Run runs a campaign to its end, or until the context ends. It goes on where a former one in the same
// directory ended. It returns an error when a fault has violations or could not be judged.
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
	if !slices.Contains(r.state.Commits, r.Commit) {
		r.state.Commits = append(r.state.Commits, r.Commit)
	}
	defer func() { err = errors.Join(err, r.down(ctx)) }()
	faults, err := r.faults(ctx)
	if err != nil {
		return err
	}
	// One round of each fault after the other: what is reached early is broad.
	for {
		left := slices.DeleteFunc(slices.Clone(faults), func(f fault.Fault) bool {
			result := r.state.Of(f.Name)
			return result.Injections >= r.Injections || len(result.Errors) >= maxErrors
		})
		if len(left) == 0 {
			return r.conclusion(faults)
		}
		for i := range left {
			if err := r.round(ctx, &left[i]); err != nil {
				return err
			}
			if r.StopAtViolation && len(r.state.Of(left[i].Name).Violations) > 0 {
				return r.conclusion(faults)
			}
		}
	}
}

// faults returns the faults that are selected and that the control plane can have.
func (r *runner) faults(ctx context.Context) ([]fault.Fault, error) {
	if err := r.up(ctx); err != nil {
		return nil, err
	}
	var all []fault.Fault
	for _, f := range fault.All() {
		if r.Only != nil && !r.Only.MatchString(f.Name) {
			continue
		}
		if !f.Can(r.plane) {
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

func (r *runner) up(ctx context.Context) (err error) {
	if r.plane == nil {
		r.plane, err = r.Start(ctx)
	}
	return err
}

func (r *runner) down(ctx context.Context) error {
	if r.plane == nil {
		return nil
	}
	plane := r.plane
	r.plane = nil
	return plane.Down(context.WithoutCancel(ctx))
}

// round runs one round, and stores what came of it.
func (r *runner) round(ctx context.Context, f *fault.Fault) error {
	if err := r.up(ctx); err != nil {
		return err
	}
	result := r.state.Of(f.Name)
	r.state.Rounds++
	round := &Round{
		Fault: f, Injections: min(r.PerRound, r.Injections-result.Injections), Number: r.state.Rounds,
		Slots: r.Slots, Rate: r.Rate, Recreate: r.Recreate && !f.NameReuse || r.StrictNameReuse, PlanDelay: r.PlanDelay,
	}
	began := time.Now()
	err := r.plane.Heal(ctx)
	var outcome *Outcome
	if err == nil {
		outcome, err = r.one(round, ctx, r.plane)
	}
	if ctx.Err() != nil {
		return ctx.Err() // it is made again
	}
	result.Duration += time.Since(began)
	if err != nil {
		result.Errors = append(result.Errors, fmt.Sprintf("round %d: %v", round.Number, err))
		fmt.Printf("round %d, %s: NOT JUDGED: %v\n", round.Number, f.Name, err)
		logs := filepath.Join(r.Dir, fmt.Sprintf("round-%04d.log", round.Number))
		return errors.Join(os.WriteFile(logs, []byte(r.plane.Logs(200)), 0o600), r.state.Save(r.Dir), r.down(ctx))
	}
	result.Rounds++
	result.Injections += outcome.Injections
	result.Operations += len(outcome.History.Operations)
	result.Namespaces += outcome.Namespaces
	result.Recovery = max(result.Recovery, outcome.Recovery)
	r.progress(round, outcome, time.Since(began))
	if len(outcome.Violations) > 0 {
		if err := r.keep(result, round, outcome); err != nil {
			return err
		}
		if err := r.down(ctx); err != nil {
			return err
		}
	}
	return r.state.Save(r.Dir)
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

// progress prints a line for a round, with what is left of a campaign.
func (r *runner) progress(round *Round, outcome *Outcome, took time.Duration) {
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
		if (r.Only == nil || r.Only.MatchString(f.Name)) && (r.plane == nil || f.Can(r.plane)) {
			result := r.state.Of(f.Name)
			injected += min(result.Injections, r.Injections)
			wanted += r.Injections
			spent += result.Duration
		}
	}
	left := "?"
	if injected > 0 {
		left = (spent / time.Duration(injected) * time.Duration(wanted-injected)).Round(time.Minute).String()
	}
	fmt.Printf("%s; %d of %d injections, about %s left\n", line, injected, wanted, left)
}

// conclusion is the error of a campaign that is not clean.
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

// Slice runs one round of several faults, each at least once, and returns an error when it finds a
// violation. It goes on with nothing, and leaves a history only then.
func Slice(ctx context.Context, options Options, faults []fault.Fault) (err error) {
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return err
	}
	r := &runner{Options: options, state: &State{Began: time.Now(), Results: map[string]*Result{}}, one: (*Round).Run}
	if err := r.up(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.down(ctx)) }()
	mixed := fault.Mixed(faults, r.plane)
	if err := r.round(ctx, &mixed); err != nil {
		return err
	}
	return r.conclusion([]fault.Fault{mixed})
}

// Recheck returns the options by which a stored history is judged again.
func Recheck(options check.Options) check.Options {
	options.ReasonDelay = reasonDelay
	return options
}
