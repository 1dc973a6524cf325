/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command runner runs the tests of nsinit. It prints which tests are done and how many remain, the cause of a failure before
// the output of the test, and the seed, which repeats a run. hack/test.sh builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner runs tests.
type runner struct {
	run, versions string
	planes, count int
	seed          int64
	short         bool
	// root is the folder of the project, and output the one of everything that is built.
	root, output string
	// match matches the names of the tests in run.
	match *regexp.Regexp

	mu sync.Mutex
	// built are the programs and test binaries that are built.
	built map[string]bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &runner{built: map[string]bool{}}
	flag.StringVar(&r.run, "run", "", "a regular expression: run the tests that match, by default all")
	flag.StringVar(&r.versions, "versions", "", "the versions of Kubernetes of test-versions, separated by spaces")
	flag.IntVar(&r.planes, "planes", 6, "how many control planes to use at the same time")
	flag.IntVar(&r.count, "stress", 0, "repeat the tests so often on a busy machine")
	flag.Int64Var(&r.seed, "seed", 0, "the seed of the order and of random tests, by default a new one")
	flag.BoolVar(&r.short, "short", false, "leave out the tests that take many seconds")
	flag.Parse()
	if r.seed == 0 {
		r.seed = 1 + time.Now().Unix()%1_000_000
	}
	top, _, _ := strings.Cut(r.run, "/")
	var err, bad error
	r.root, err = os.Getwd()
	if r.match, bad = regexp.Compile(top); err != nil || bad != nil {
		fmt.Fprintln(os.Stderr, "error:", errors.Join(err, bad))
		os.Exit(1)
	}
	r.output = filepath.Join(r.root, "_output")
	if r.stress(ctx, flag.Arg(0)) || ctx.Err() != nil {
		os.Exit(1)
	}
}

// once runs the parts of a target: at the same time those that need no control plane, and the others.
func (r *runner) once(ctx context.Context, target string) *report {
	done := newReport(ctx, os.Stdout, r.root, r.seed)
	parts := partsOf(target)
	if r.run == "" && slices.ContainsFunc(parts, usesPlanes) {
		// Two go commands at the same time would compile what both need twice.
		r.build(ctx, done.part("build", false), parts, strings.Fields(r.versions))
	}
	var lanes sync.WaitGroup
	lanes.Go(func() {
		for _, name := range parts {
			if modules := modulesOf(name); modules != nil && ctx.Err() == nil {
				r.unit(ctx, done.part(name, true), modules)
			}
		}
	})
	lanes.Go(func() { r.onPlanes(ctx, done, parts) })
	lanes.Wait()
	if done.tests == nil && done.failures == nil {
		done.part(target, false).broken("run", fmt.Errorf("no test matches %q", r.run))
	}
	return done
}

// load returns the load of the machine in the last minute.
func load() string {
	average, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(average), " ")
	return one
}
