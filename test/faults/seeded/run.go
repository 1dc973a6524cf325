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
)

// Options say what to run.
type Options struct {
	// Root is the directory of the source.
	Root string
	// Only selects bugs by their names.
	Only *regexp.Regexp
	// Campaign also runs the scenario of each bug on a control plane, whose state directory is
	// Plane. Injections is how often its fault is injected at most.
	Campaign   bool
	Plane      string
	Injections int
	Output     io.Writer
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

// find runs one of the two in a directory of its own.
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
	args := []string{"test", "-overlay", overlay, "-count=1", "-run", b.Test, b.Package}
	if slices.Contains([]string{promises, writes, poller}, b.Test) {
		args = append(args, "-rapid.nofailfile")
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

// scenario builds everything from a copy of the source with the bug, and runs the faults that
// trigger it.
func (b Bug) scenario(ctx context.Context, options Options, dir string) (string, error) {
	if err := copySource(ctx, options.Root, dir); err != nil {
		return "", err
	}
	patch, err := b.Patch()
	if err != nil {
		return "", err
	}
	if err := apply(ctx, dir, patch); err != nil {
		return "", err
	}
	results := filepath.Join(dir, "_output", "faults")
	injections := strconv.Itoa(options.Injections)
	program := filepath.Join(dir, "_output", "faults-program")
	if output, err := goCommand(ctx, dir, "build", "-o", program, "./test/faults"); err != nil {
		return "", fmt.Errorf("cannot build the campaign: %w: %s", err, output)
	}
	command := exec.CommandContext(ctx, program, "run", "-small", "-stop-at-violation", "-only", b.Fault, "-injections", injections,
		"-per-round", injections, "-dir", results, "-plane", options.Plane)
	command.Dir = dir
	// It stops the control plane.
	command.Cancel, command.WaitDelay = func() error { return command.Process.Signal(os.Interrupt) }, time.Minute
	output, err := command.CombinedOutput()
	state, loadErr := campaign.Load(results)
	if loadErr != nil || len(state.Results) == 0 {
		return "", fmt.Errorf("the campaign did not run: %w: %s", errors.Join(err, loadErr), output)
	}
	var found []string
	for _, result := range state.Results {
		for _, violation := range result.Violations {
			found = append(found, violation.Check)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if !slices.Contains(found, b.Check) {
		return "", fmt.Errorf("check %s found nothing in %d rounds, others found %q", b.Check, state.Rounds, found)
	}
	return describe(b.Check) + " (" + strings.Trim(b.Fault, "^$") + ")", nil
}

func describe(name string) string {
	for _, checker := range check.Checkers() {
		if checker.Name == name {
			return name + ": " + checker.Summary
		}
	}
	return name
}

// copySource copies the source, and links the programs of Kubernetes that were built from it.
func copySource(ctx context.Context, root, dir string) error {
	const script = `cd "$1"
git ls-files -z --cached --others --exclude-standard --deduplicate |
  tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$2"
mkdir -p "$2/_output/bin"
cp --archive --link _output/bin/. "$2/_output/bin/"`
	output, err := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script, "copy", root, dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot copy the source: %w: %s", err, output)
	}
	return nil
}
