/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// event is an event of go test -json.
type event struct {
	Action, Package, ImportPath, FailedBuild, Test, Output, Key, Value string
	Elapsed                                                            float64
}

// line is a line that a test or one of its subtests has printed.
type line struct{ test, text string }

// result is the end of a test, a package or a step, and why it failed.
type result struct {
	part, name string
	seconds    float64
	cause      []string
}

// report is what is known about a run of tests.
type report struct {
	ctx             context.Context // its end ends the report
	out             io.Writer
	root            string
	seed            int64
	load, loadAfter string
	began           time.Time
	took            time.Duration

	mu    sync.Mutex
	parts []*part
	// failures are also in tests or packages.
	tests, packages, failures []result
}

// part is a part of the tests. It counts its packages, or its tests.
type part struct {
	*report
	name                string
	packages            bool
	total, done, failed int
	events              io.Writer
	// lines are what tests and packages have printed that have not ended. waited are the seconds in which a test or subtest waited
	// for a control plane. subtests are the other seconds of those that waited, which go test does not count as the test's.
	lines            map[key][]line
	waited, subtests map[key]float64
}

// key is a test of a package, or the package.
type key struct{ pkg, test string }

func newReport(ctx context.Context, out io.Writer, root string, seed int64) *report {
	r := &report{ctx: ctx, out: out, root: root, seed: seed, load: load(), began: time.Now()}
	fmt.Fprintf(out, "==> seed %d (SEED=%d repeats the order and the random choices), load %s on %d CPUs\n", seed, seed, r.load, runtime.NumCPU())
	return r
}

// part returns a part, which it makes the first time. Its events are kept in a file.
func (r *report) part(name string, packages bool) *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.parts, func(p *part) bool { return p.name == name }); i >= 0 {
		return r.parts[i]
	}
	p := &part{report: r, name: name, packages: packages, events: io.Discard, lines: map[key][]line{}, waited: map[key]float64{}, subtests: map[key]float64{}}
	if file, err := os.Create(filepath.Join(r.root, "_output", "tests", name+".json")); err == nil {
		p.events = file
	}
	r.parts = append(r.parts, p)
	return p
}

// print prints a line. The caller holds mu.
func (p *part) print(format string, args ...any) {
	seconds := int(time.Since(p.began).Seconds())
	fmt.Fprintf(p.out, "[%3dm%02ds] %s%s\n", seconds/60, seconds%60, p.name, fmt.Sprintf(format, args...))
}

// say prints what the part does.
func (p *part) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(": %s", text)
}

// event handles a line of go test -json, and reports whether it is one. It prints any other line.
func (p *part) event(raw string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e event
	if err := json.Unmarshal([]byte(raw), &e); err != nil {
		if text := strings.TrimSpace(raw); text != "" {
			p.print(": %s", text)
		}
		return false
	}
	_, _ = io.WriteString(p.events, raw)
	test, _, isSub := strings.Cut(e.Test, "/")
	k := key{cmp.Or(e.Package, e.ImportPath), test}
	switch e.Action {
	case "output", "build-output":
		p.lines[k] = append(p.lines[k], line{e.Test, strings.TrimSuffix(e.Output, "\n")})
	case "attr":
		if seconds, err := strconv.ParseFloat(e.Value, 64); e.Key == "waited" && err == nil {
			p.waited[key{k.pkg, e.Test}] = seconds
		}
	case "pass", "fail", "skip":
		if waited, has := p.waited[key{k.pkg, e.Test}]; isSub && has {
			p.subtests[k] += e.Elapsed - waited
		} else if !isSub {
			p.ended(e, k)
		}
	}
	return true
}

// ended counts a test or a package.
func (p *part) ended(e event, k key) {
	lines, failed := p.lines[k], e.Action == "fail"
	delete(p.lines, k)
	pkg := strings.TrimPrefix(k.pkg, project)
	one := result{name: k.test, seconds: e.Elapsed - p.waited[k] + p.subtests[k]}
	if k.test == "" || p.packages {
		one.name = strings.TrimSpace(pkg + " " + k.test)
	}
	switch {
	case k.test != "":
		p.tests = append(p.tests, one)
	case p.packages:
		p.report.packages = append(p.report.packages, one)
	}
	if k.test == "" && failed {
		lines, failed = p.unfinished(e, lines)
	}
	counts := p.packages == (k.test == "")
	if counts {
		p.done++
	}
	if failed {
		one.cause = cause(p.root, pkg, lines)
		p.fail(one, lines)
	} else if counts {
		p.print(" %d/%d %s %s (%.1fs); failed %d", p.done, p.total, strings.Replace(e.Action, "pass", "ok", 1), one.name, one.seconds, p.failed)
	}
}

// unfinished adds to the lines of a failed package those of its build and of its tests that did not end. It reports whether it is
// more than the failure of a test.
func (p *part) unfinished(e event, lines []line) ([]line, bool) {
	lines = append(lines, p.lines[key{e.FailedBuild, ""}]...)
	var names []string
	for k, printed := range p.lines {
		if k.pkg == e.Package {
			names, lines = append(names, k.test), append(lines, printed...)
			delete(p.lines, k)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		lines = append(lines, line{text: fmt.Sprintf("panic: %d tests did not end: %s", len(names), strings.Join(names, ", "))})
	}
	failedTest := slices.ContainsFunc(p.failures, func(f result) bool {
		return f.part == p.name && (!p.packages || strings.HasPrefix(f.name, strings.TrimPrefix(e.Package, project)+" "))
	})
	return lines, len(names) > 0 || !failedTest
}

// fail reports a failure: its cause, and then what it has printed.
func (p *part) fail(f result, lines []line) {
	if p.ctx.Err() != nil {
		return // it was interrupted
	}
	f.part = p.name
	p.failed++
	p.failures = append(p.failures, f)
	p.print(" %d/%d FAILED %s (%.1fs); failed %d\n    %s", p.done, p.total, f.name, f.seconds, p.failed, strings.Join(f.cause, "\n    "))
	if len(lines) > 0 {
		p.print(": the output of %s:", f.name)
		for _, l := range lines {
			fmt.Fprintln(p.out, l.text)
		}
		p.print(": the end of the output of %s", f.name)
	}
}

// broken reports that a step failed, which is no test.
func (p *part) broken(step string, err error, said ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(result{name: step, cause: shorten([][]string{append(said, err.Error())})}, nil)
}

// summary prints the slowest tests and packages, and each failure with its cause. It reports whether there is one.
func (r *report) summary() bool {
	r.took, r.loadAfter = time.Since(r.began), load()
	for i, all := range [][]result{r.tests, r.packages} {
		slices.SortStableFunc(all, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
		for n, one := range all[:min(10, len(all))] {
			if n == 0 {
				fmt.Fprintln(r.out, "==> the slowest", []string{"tests", "packages"}[i])
			}
			fmt.Fprintf(r.out, "%8.1fs  %s\n", one.seconds, one.name)
		}
	}
	for _, f := range r.failures {
		target, run := f.part, ""
		switch {
		case strings.HasPrefix(target, "v"):
			target = "test-versions VERSIONS=" + target
		case target == "tools":
			target = "packaging"
		}
		if test := f.name[strings.LastIndex(f.name, " ")+1:]; strings.HasPrefix(test, "Test") {
			run = fmt.Sprintf(" RUN='^%s$'", test)
		}
		fmt.Fprintf(r.out, "==> FAILED %s %s (%.1fs); repeat it with: make %s%s SEED=%d\n    %s\n", f.part, f.name, f.seconds, target, run, r.seed, strings.Join(f.cause, "\n    "))
	}
	if r.ctx.Err() != nil {
		fmt.Fprintln(r.out, "==> interrupted")
	}
	fmt.Fprintf(r.out, "==> %d failed", len(r.failures))
	for _, p := range r.parts {
		if p.total > 0 {
			fmt.Fprintf(r.out, "; %s %d/%d", p.name, p.done, p.total)
		}
	}
	fmt.Fprintf(r.out, "; took %s; seed %d; load %s at the start, %s at the end\n", r.took.Round(time.Second), r.seed, r.load, r.loadAfter)
	return len(r.failures) > 0
}
