/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// watchedEvery is the time between two reads of the cluster.
	watchedEvery = 5 * time.Second
	// watchedShare is how many times as long as a read takes the next one waits at least: large clusters are read less often.
	watchedShare = 3
)

// watch prints what changes. It ends with its context and, for one namespace, when this is healthy or removed.
func (o *Options) watch(ctx context.Context, diagnoser diagnosis.Diagnoser, line *cmdutil.Line) error {
	w := &diagnosis.Watch{Diagnoser: diagnoser}
	if !o.All {
		w.Namespace = o.Args[0]
	}
	printer := &changePrinter{Options: o, table: printers.GetNewTabWriter(o.Out)}
	reported := sets.New[string]()
	for first := true; ; first = false {
		began := o.Clients.Clock.Now()
		changes, err := w.Next(ctx)
		line.End()
		w.Diagnoser.Progress = nil
		switch {
		case ctx.Err() != nil:
			return exitCode(w.State())
		case first && apierrors.IsNotFound(err):
			return cmdutil.NoNamespace(w.Namespace)
		case first && err != nil:
			return err
		case err != nil: // the server may be restarting
			_, _ = fmt.Fprintf(o.ErrOut, "cannot read the cluster, retrying: %s\n", printable.Line(err.Error()))
		default:
			reported = o.report(w.NotExamined(), reported)
		}
		if err := printer.print(changes); err != nil {
			return err
		}
		if w.Namespace != "" && err == nil && w.State() == diagnosis.Healthy {
			return nil
		}
		select {
		case <-ctx.Done():
			return exitCode(w.State())
		case <-o.Clients.Clock.After(max(watchedEvery, watchedShare*o.Clients.Clock.Now().Sub(began))):
		}
	}
}

// report prints what was not examined and is not reported yet, and returns what is. Reasons can change each time.
func (o *Options) report(notExamined []string, reported sets.Set[string]) sets.Set[string] {
	all := sets.New[string]()
	for _, message := range notExamined {
		what, _, _ := strings.Cut(message, ": ")
		if !reported.Has(what) && !all.Has(what) {
			_, _ = fmt.Fprintf(o.ErrOut, "not examined, retrying: %s\n", printable.Line(message))
		}
		all.Insert(what)
	}
	return all
}

// changePrinter prints changes: lines in columns, or diagnoses as a stream.
type changePrinter struct {
	*Options
	table interface {
		io.Writer
		Flush() error
	}
	printed bool
}

func (p *changePrinter) print(changes []diagnosis.Change) error {
	for _, change := range changes {
		if p.printed && *p.PrintFlags.OutputFormat == "yaml" {
			if _, err := fmt.Fprintln(p.Out, "---"); err != nil {
				return err
			}
		}
		if err := p.PrintFlags.Print(p.Out, change.After, func(io.Writer) error { return p.lines(change) }); err != nil {
			return err
		}
		p.printed = true
	}
	return p.table.Flush()
}

// lines prints a line for each finding that changed, or one for a namespace without findings.
func (p *changePrinter) lines(change diagnosis.Change) error {
	if !p.printed {
		_, _ = fmt.Fprintln(p.table, "TIME\tNAMESPACE\tPHASE\tSTATE\tCAUSE\tCONTROLLER\tMESSAGE")
	}
	now, d := p.Clients.Clock.Now().Format(time.TimeOnly), change.After
	row := func(state, cause, controller, message string) {
		_, _ = fmt.Fprintf(p.table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", now, cmp.Or(d.Namespace, "<cluster>"), cmp.Or(string(d.Phase), "-"), state, cause, controller, message)
	}
	for _, f := range change.Appeared {
		row(string(f.State), string(f.Cause), controllerOf(f), printable.Line(f.Message))
	}
	for _, f := range change.Resolved {
		row("Resolved", string(f.Cause), "-", "")
	}
	if d.State == diagnosis.Healthy {
		row(string(d.State), "-", "-", "it waits for nothing")
	}
	return nil
}

// controllerOf returns the state of the program that has to act, in a column.
func controllerOf(f diagnosis.Finding) string {
	if f.Controller == nil {
		return "-"
	}
	return string(f.Controller.State)
}
