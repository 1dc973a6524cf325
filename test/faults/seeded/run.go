/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package seeded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nsinit/nsinit/test/faults/campaign"
	"github.com/nsinit/nsinit/test/faults/check"
	"github.com/nsinit/nsinit/test/faults/history"
	"github.com/nsinit/nsinit/test/faults/traffic"
)

// Options say what to run.
type Options struct {
	// Root is the directory of the source.
	Root string
	// Only selects bugs by their names.
	Only *regexp.Regexp
	// Campaign also runs the scenario of each bug on a control plane. Injections is how often its fault is injected at most.
	Campaign   bool
	Injections int
	// Histories is where the history of each scenario is stored, or empty.
	Histories string
	Output    io.Writer
}

// outcome is what found a bug: the name of a test or a check, or why nothing did.
type outcome struct {
	bug            Bug
	test, scenario string
	missed         bool
}

// Run makes each bug, runs what must find it, and prints a table. It returns an error if a bug was
// not found.
func Run(ctx context.Context, options Options) error {
	var outcomes []outcome
	for _, bug := range Bugs() {
		if options.Only != nil && !options.Only.MatchString(bug.Name) {
			continue
		}
		result := outcome{bug: bug, test: "-", scenario: "-"}
		if bug.Test != "" {
			result.test = options.find(&result, "test", func(dir string) (string, error) { return bug.test(ctx, options.Root, dir) })
		}
		if options.Campaign && bug.Fault != "" {
			result.scenario = options.find(&result, "campaign", func(dir string) (string, error) { return bug.scenario(ctx, options, dir) })
		}
		outcomes = append(outcomes, result)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	_, _ = fmt.Fprintln(options.Output, "\n| bug | what it does | test | campaign |\n| --- | --- | --- | --- |")
	var missed []string
	for _, result := range outcomes {
		_, _ = fmt.Fprintf(options.Output, "| %s | %s | %s | %s |\n", result.bug.Name, result.bug.Description, result.test, result.scenario)
		if result.missed {
			missed = append(missed, result.bug.Name)
		}
	}
	if len(outcomes) == 0 {
		return errors.New("no bug is selected")
	}
	if len(missed) > 0 {
		return fmt.Errorf("these bugs were not found: %s", strings.Join(missed, ", "))
	}
	return nil
}

// find runs one of the two in a separate directory.
func (o Options) find(result *outcome, what string, run func(dir string) (string, error)) string {
	dir, err := os.MkdirTemp("", "seeded")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		var found string
		if found, err = run(dir); err == nil {
			_, _ = fmt.Fprintf(o.Output, "%s: found by %s\n", result.bug.Name, found)
			return found
		}
	}
	_, _ = fmt.Fprintf(o.Output, "%s: NOT FOUND by the %s: %v\n", result.bug.Name, what, err)
	result.missed = true
	return "not found"
}

// test runs the test that needs no control plane.
func (b Bug) test(ctx context.Context, root, dir string) (string, error) {
	overlay, err := Overlay(ctx, root, dir, b)
	if err != nil {
		return "", err
	}
	if err := Build(ctx, root, overlay, b); err != nil {
		return "", err
	}
	args := []string{"-C", b.Package, "test", "-overlay", overlay, "-count=1", "-run", b.Test, "."}
	if slices.Contains([]string{promises, writes, reads, merged, admitted}, b.Test) {
		args = append(args, "-rapid.nofailfile", "-rapid.checks=1000")
	}
	name := strings.Trim(b.Test, "^$")
	output, err := goCommand(ctx, root, args...)
	switch {
	case err == nil:
		return "", fmt.Errorf("%s passes", name)
	case !strings.Contains(string(output), "--- FAIL: "+name):
		return "", fmt.Errorf("%s could not run: %s", name, output)
	}
	return name, nil
}

// scenario builds nsinit with the bug, and runs the faults that trigger it.
func (b Bug) scenario(ctx context.Context, options Options, dir string) (string, error) {
	overlay, err := Overlay(ctx, options.Root, dir, b)
	if err != nil {
		return "", err
	}
	programs, results := filepath.Join(dir, "bin"), filepath.Join(dir, "results")
	build := exec.CommandContext(ctx, filepath.Join(options.Root, "hack", "build.sh"), programs)
	build.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build nsinit: %w: %s", err, output)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	injections := strconv.Itoa(options.Injections)
	command := exec.CommandContext(ctx, self, "run", "-small", "-stop-at-violation", "-only", b.Fault, "-injections", injections,
		"-per-round", injections, "-dir", results, "-bin-dir", programs)
	command.Dir = options.Root
	// It stops the control plane.
	command.Cancel, command.WaitDelay = func() error { return command.Process.Signal(os.Interrupt) }, time.Minute
	output, err := command.CombinedOutput()
	state, loadErr := campaign.Load(results)
	if loadErr != nil || len(state.Results) == 0 {
		return "", fmt.Errorf("the campaign did not run: %w: %s", errors.Join(err, loadErr), output)
	}
	var found []check.Violation
	for _, result := range state.Results {
		found = append(found, result.Violations...)
	}
	i := slices.IndexFunc(found, func(v check.Violation) bool { return v.Check == b.Check })
	if i < 0 {
		return "", fmt.Errorf("check %s found nothing in %d rounds, others found %v", b.Check, state.Rounds, found)
	}
	if options.Histories != "" {
		if err := b.store(options.Histories, results, state, found[i]); err != nil {
			return "", err
		}
	}
	return describe(b.Check) + " (" + strings.Trim(b.Fault, "^$") + ")", nil
}

// store keeps what concerns a violation of a history, which TestHistories judges again.
func (b Bug) store(dir, results string, state *campaign.State, violation check.Violation) error {
	for _, result := range state.Results {
		for _, file := range result.Histories {
			h, err := history.Load(filepath.Join(results, file))
			if err != nil {
				return err
			}
			if h = h.Of(violation.Namespace); b.foundIn(h) {
				return h.Save(filepath.Join(dir, b.Name+historySuffix))
			}
		}
	}
	return fmt.Errorf("the history of namespace %q alone does not show the violation %s", violation.Namespace, violation)
}

const historySuffix = ".jsonl.gz"

// foundIn reports whether the check finds the bug in a history.
func (b Bug) foundIn(h *history.History) bool {
	found := check.All(h, campaign.Recheck(check.Options{NamePrefix: traffic.NamePrefix}))
	return slices.ContainsFunc(found, func(v check.Violation) bool { return v.Check == b.Check })
}

func describe(name string) string {
	for _, checker := range check.Checkers() {
		if checker.Name == name {
			return name + ": " + checker.Summary
		}
	}
	return name
}
