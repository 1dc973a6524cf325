/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package why is the command kubectl nsinit why: it shows a diagnosis of a namespace.
package why

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

const long = `Show the state of a namespace, what it waits for and which commands help. With --all, show every namespace of the cluster that
waits for something, content of namespaces that do not exist any more, and what blocks deletions in the whole cluster. With
--if-deleted, show what would block or delay a deletion of the namespace.

It works for every namespace that is being initialized or deleted, on any cluster, with or without nsinit. Of other namespaces, it
shows objects whose deletion takes too long. It tries deletions with dry-run, and changes nothing without --fix and --confirm. It lists
what you have no permission to read as not examined.

For each cause it shows commands, the safest first, with the risk of the others. Commands that change fields which kubectl cannot
write need jq.

If a program has to act, such as the controller behind a finalizer, it shows whether the program is alive, dead or unknown, and the
evidence.

With --fix, it shows the requests of the remedies that it can apply itself, what each of them loses, and a digest. With --confirm and a
digest, it diagnoses the namespace again, and applies this remedy if its requests are still the same. Each request names the UID and the
resourceVersion of its object, so kube-apiserver refuses it after another change. The requests are yours and need your permissions.
OrphanedContent is an exception: its namespace does not exist yet, so the requests create it, and delete the one with its new UID. Its
digest covers the UIDs of the content that you can list, and the names of the resources that you cannot list.

The exit code is 0 if no namespace waits for anything, 2 if something is in progress, 3 if a user has to act, and 1 if the namespace
does not exist or its state cannot be determined. With --if-deleted, it is 0 if nothing would block a deletion, 2 if something would
delay it, and 3 if something would block it. With --watch, it is 0 when the namespace is healthy or removed. If you interrupt the
command, the exit code is that of the last state. With --fix, it is 0, or 1 if a remedy cannot be applied.`

const example = `  # Why does the namespace shop not open, or not terminate?
  kubectl nsinit why shop

  # Which namespaces of the cluster do not open, or not terminate?
  kubectl nsinit why --all

  # Follow the namespaces that wait for something, until Ctrl-C
  kubectl nsinit why --all --watch

  # Can the namespace shop be deleted? What would a deletion wait for?
  kubectl nsinit why shop --if-deleted

  # Which remedies can the command apply, and what would it send?
  kubectl nsinit why shop --fix

  # Apply the one with this digest, if nothing has changed
  kubectl nsinit why shop --fix --confirm=0123456789abcdef

  # Only the causes, for a program
  kubectl nsinit why shop --output=json | jq --raw-output '.findings[] | "\(.state) \(.cause): \(.message)"'

  # What the namespace controller cannot delete, although you can
  kubectl nsinit why shop --as=system:serviceaccount:kube-system:namespace-controller`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Patience time.Duration
	All      bool
	// IfDeleted makes the command show what would block a deletion.
	IfDeleted bool
	// Watch makes the command print again when something changes.
	Watch bool
	// Fix makes the command show the remedies that it can apply, and Confirm apply the one with this digest.
	Fix     bool
	Confirm string
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	// Every resource is listed, also in versions that are deprecated.
	o.Config = []func(*rest.Config){cmdutil.WithoutWarnings}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:               "why NAMESPACE",
		Short:             "Show why a namespace does not open, or is not deleted",
		Long:              long,
		Example:           example,
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
		Args: func(command *cobra.Command, args []string) error {
			if o.All && (o.IfDeleted || o.Fix) {
				return errors.New("--if-deleted and --fix are for one namespace: give its name instead of --all")
			}
			return cmdutil.ArgsUnless(&o.All, "--all is for every namespace")(command, args)
		},
	})
	command.Flags().BoolVarP(&o.All, "all", "A", o.All, "Show every namespace that waits for something.")
	command.Flags().BoolVar(&o.IfDeleted, "if-deleted", o.IfDeleted, "Show what would block or delay a deletion of the namespace.")
	command.Flags().BoolVarP(&o.Watch, "watch", "w", o.Watch, "Print a line for each change, until the namespace is healthy or removed or, with --all, until you interrupt it.")
	command.Flags().BoolVar(&o.Fix, "fix", o.Fix, "Show the requests of the remedies that the command can apply, and a digest of each.")
	command.Flags().StringVar(&o.Confirm, "confirm", o.Confirm, "With --fix, apply the remedy with this digest, if nothing has changed.")
	o.DryRun.AddFlag(command)
	cmdutil.DurationVar(command.Flags(), &o.Patience, "patience", diagnosis.DefaultPatience, "How long something may take before it counts as stuck.")
	return command
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	switch {
	case o.Watch && (o.IfDeleted || o.Fix), o.IfDeleted && o.Fix:
		return errors.New("give only one of --watch, --if-deleted and --fix")
	case !o.Fix && (o.Confirm != "" || bool(o.DryRun)):
		return errors.New("--confirm and --dry-run need --fix: nothing else is written")
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	line := cmdutil.NewLine(o.ErrOut, o.Clients.Clock)
	diagnoser := diagnosis.Diagnoser{Clients: o.Clients.Clients, Clock: o.Clients.ServerClock, Patience: o.Patience}
	diagnoser.Progress = func(done, total int) { line.Show("read %d of %d resources", done, total) }
	switch {
	case o.Fix:
		return o.fix(ctx, diagnoser, line)
	case o.Watch:
		return o.watch(ctx, diagnoser, line)
	case o.All:
		return o.all(ctx, diagnoser, line)
	}
	diagnose := diagnoser.Diagnose
	if o.IfDeleted {
		diagnose = diagnoser.DiagnoseDeletion
	}
	found, err := diagnose(ctx, o.Args[0])
	line.End()
	if apierrors.IsNotFound(err) {
		return cmdutil.NoNamespace(o.Args[0])
	}
	if err != nil {
		return err
	}
	if err := o.PrintFlags.Print(o.Out, found, func(out io.Writer) error { return o.text(out, found) }); err != nil {
		return err
	}
	return exitCode(found.State)
}

// all shows every namespace that is not healthy.
func (o *Options) all(ctx context.Context, diagnoser diagnosis.Diagnoser, line *cmdutil.Line) error {
	diagnoser.Diagnosed = func(done, total int) { line.Show("diagnosed %d of %d namespaces", done, total) }
	list, err := diagnoser.DiagnoseAll(ctx)
	line.End()
	if err != nil {
		return err
	}
	if err := o.PrintFlags.Print(o.Out, list, func(out io.Writer) error { return o.table(out, list) }); err != nil {
		return err
	}
	if list.State() == diagnosis.Healthy && len(list.NotExamined) > 0 {
		return errors.New("not everything could be examined")
	}
	return exitCode(list.State())
}

// exitCode returns the exit code for the worst state.
func exitCode(state diagnosis.State) error {
	switch state {
	case diagnosis.Waiting:
		return cmdutil.ExitWarning
	case diagnosis.Stuck:
		return cmdutil.ExitProblem
	}
	return nil
}
