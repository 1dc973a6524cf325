/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package check is the command kubectl nsinit check: it checks whether nsinit can be installed, and whether it is installed correctly.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// interval is the time between two checks of an installation that is not complete.
const interval = 2 * time.Second

const long = `Check whether nsinit is installed correctly. The command checks the Kubernetes version, the API, the certificates, the storage, the
controllers, the policies and their ConfigMaps. It also checks whether a new namespace would be closed.

With --pre, the command checks a cluster before the installation, and shows what would block the installation or cause problems later. It
checks the Kubernetes version, the kinds of policies that kube-apiserver serves, and the aggregation layer. It also checks your permissions,
the default StorageClass, and whether a former installation left objects. Finally, it lists admission policies and webhooks that can refuse
requests of nsinit. It does not evaluate the conditions of these policies and webhooks.

With --wait, the command waits until every program of nsinit runs its newest version, and until no check finds a problem. Meanwhile, the
command prints what it waits for.

With the name of a namespace, the command shows whether nsinit would close a new namespace of this name. If a line of the ConfigMap
nsinit-exemptions exempts the namespace, the command shows the line. Without --creator, you are the creator.

The command changes nothing: every write that it sends is a dry run.

The exit code is 0 if every check is OK, 2 if a check has a warning, and 3 if a check finds a problem. With --wait, it is also 3 if the
installation is not complete within --timeout. The exit code is 1 if the command cannot reach the cluster.`

const example = `  # Check a cluster before the installation
  kubectl nsinit check --pre

  # Check the installation
  kubectl nsinit check

  # Wait until the installation is complete, and check the installation
  kubectl nsinit check --wait --timeout=10m

  # Print only warnings and problems, for a script
  kubectl nsinit check --output=json | jq '.items[] | select(.state != "OK")'

  # Would nsinit close the namespace shop if an operator created this namespace?
  kubectl nsinit check shop --creator=system:serviceaccount:olm:operator`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	cmdutil.Future
	Pre     bool
	Wait    bool
	Timeout time.Duration
	// timeoutGiven is whether the user set Timeout.
	timeoutGiven func() bool
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "check [NAMESPACE]",
		Short:   "Check the installation of nsinit, or check a cluster before the installation",
		Long:    long,
		Example: example,
	})
	flags := command.Flags()
	o.AddCreatorFlags(flags)
	flags.BoolVar(&o.Pre, "pre", o.Pre, "Check a cluster before the installation.")
	flags.BoolVar(&o.Wait, "wait", o.Wait, "Wait until the installation is complete.")
	cmdutil.DurationVar(flags, &o.Timeout, "timeout", 5*time.Minute, "How long to wait with --wait. 0 waits indefinitely.")
	o.timeoutGiven = func() bool { return flags.Changed("timeout") }
	return command
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	if len(o.Args) == 0 && o.IsSet() {
		return fmt.Errorf("--creator and --groups need the name of a namespace; for example:\n%s", example)
	}
	if o.Wait && len(o.Args) > 0 {
		return fmt.Errorf("--wait waits for the installation: omit the name %q, or omit --wait; for example:\n%s", o.Args[0], example)
	}
	if o.Pre && (o.Wait || len(o.Args) > 0) {
		return fmt.Errorf("--pre checks the cluster before the installation: omit --wait and the name of a namespace; for example:\n%s", example)
	}
	if !o.Wait && o.timeoutGiven() {
		return fmt.Errorf("--timeout needs --wait; for example:\n%s", example)
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	if _, err := o.Clients.Core.Discovery().ServerVersion(); err != nil {
		return fmt.Errorf("the cluster cannot be reached: %w", err)
	}
	if len(o.Args) > 0 {
		result, err := creation(ctx, o.Clients, o.Future, o.Args[0], "")
		if err != nil {
			return err
		}
		return o.PrintFlags.Print(o.Out, result, result.print)
	}
	results, complete := []Result(nil), true
	switch {
	case o.Pre:
		results = inspectBefore(ctx, o.Clients)
	case o.Wait:
		results, complete = o.await(ctx)
	default:
		results = inspect(ctx, o.Clients)
	}
	if err := o.PrintFlags.Print(o.Out, cmdutil.NewList("InstallationCheck", results), func(out io.Writer) error { return printText(out, results) }); err != nil {
		return err
	}
	if !complete {
		return o.notComplete(ctx, results)
	}
	has := func(state State) bool {
		return slices.ContainsFunc(results, func(result Result) bool { return result.State == state })
	}
	switch {
	case has(Problem):
		return cmdutil.ExitProblem
	case has(Warning):
		return cmdutil.ExitWarning
	}
	return nil
}

// notComplete names the checks for which the command has waited until its end.
func (o *Options) notComplete(ctx context.Context, results []Result) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	var checks []string
	for _, result := range incomplete(results) {
		if !slices.Contains(checks, result.Check) {
			checks = append(checks, result.Check)
		}
	}
	_, _ = fmt.Fprintf(o.ErrOut, "error: the installation is not complete after %s, because of %s: see the remedies above\n", o.Timeout, strings.Join(checks, ", "))
	return cmdutil.ExitProblem
}

// printText prints a line for each finding, and below it the remedy.
func printText(out io.Writer, results []Result) error {
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "CHECK\tSTATE\tFOUND")
	for _, result := range results {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", result.Check, result.State, printable.Line(result.Message))
		if result.Remedy != "" {
			_, _ = fmt.Fprintf(table, "\t\t  remedy: %s\n", printable.Line(result.Remedy))
		}
	}
	return table.Flush()
}

// await checks until the installation is complete, and prints what it waits for when that changes. It returns the last
// results, and whether the installation is complete.
func (o *Options) await(ctx context.Context) ([]Result, bool) {
	ctx, cancel := cmdutil.WithTimeout(ctx, o.Timeout)
	defer cancel()
	said := ""
	var last []Result
	for {
		results := inspect(ctx, o.Clients)
		if last == nil || cmdutil.Ended(ctx) == nil { // requests that were cancelled explain nothing
			last = results
		}
		waiting := incomplete(last)
		if len(waiting) == 0 {
			return last, true
		}
		if message := waiting[0].Check + ": " + printable.Line(waiting[0].Message); message != said {
			said = message
			_, _ = fmt.Fprintf(o.ErrOut, "waiting for %s\n", message)
		}
		select {
		case <-ctx.Done():
			return last, false
		case <-o.Clients.Clock.After(interval):
		}
	}
}

// incomplete returns the results that a complete installation does not have. While kube-apiserver cannot be reached, most checks
// are unknown.
func incomplete(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(result Result) bool {
		return result.State != Problem && !result.Unfinished
	})
}
