/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"text/tabwriter"
)

// stress repeats tests while two processes compile the standard library, and prints a table of the runs with their failures. If count is 0, it
// only runs the tests.
func (r *runner) stress(ctx context.Context, target string) (failed bool) {
	if r.count == 0 {
		return r.once(ctx, target).summary()
	}
	busy, stop := context.WithCancel(ctx)
	var burning sync.WaitGroup
	for range 2 {
		burning.Go(func() { r.burn(busy) })
	}
	var all []*report
	for ; len(all) < r.count && ctx.Err() == nil; r.seed++ {
		fmt.Printf("==> run %d of %d\n", len(all)+1, r.count)
		done := r.once(ctx, target)
		failed = done.summary() || failed
		all = append(all, done)
	}
	stop()
	burning.Wait()
	table(os.Stdout, all)
	return failed
}

// burn compiles the standard library until the context ends.
func (r *runner) burn(ctx context.Context) {
	cache, err := os.MkdirTemp("", "nsinit-stress")
	for err == nil && ctx.Err() == nil {
		command := r.command(ctx, "", "go", "build", "-a", "std")
		command.Env = append(command.Env, "GOCACHE="+cache)
		_ = command.Run()
	}
	_ = os.RemoveAll(cache)
}

// table prints every run, and its failures.
func table(out io.Writer, all []*report) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSEED\tSECONDS\tLOAD\tTEST\tCAUSE")
	failed := 0
	for i, run := range all {
		started := fmt.Sprintf("%d\t%d\t%.0f\t%s", i+1, run.seed, run.took.Seconds(), run.loadAfter)
		if len(run.failures) == 0 {
			fmt.Fprintf(w, "%s\tall passed\t\n", started)
			continue
		}
		failed++
		for _, f := range run.failures {
			fmt.Fprintf(w, "%s\t%s %s\t%s\n", started, f.part, f.name, append(f.cause, "")[0])
		}
	}
	fmt.Fprintf(w, "==> %d of %d runs failed\n", failed, len(all))
	_ = w.Flush()
}
