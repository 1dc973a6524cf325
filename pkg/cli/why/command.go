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

const long = `Show why a namespace does not open or does not terminate, and which commands help. The command works on every cluster, with or without
nsinit. In an open namespace, the command finds objects whose deletion takes too long, and pods and Jobs that wait for initializers.

With --all, the command shows every namespace that waits for something, and the content of namespaces that no longer exist. It also shows
what blocks deletions in the whole cluster. With --if-deleted, the command shows what would block or delay a deletion of the namespace.

The command changes nothing without --fix and --confirm. To find out which deletions are refused, it sends dry-run requests. If you may not
read a resource, the command lists this resource as not examined.

For each cause, the command prints the remedies, the safest first, and the risk of the other remedies. You need jq for some commands,
because kubectl cannot change every field.

If a controller or another program has to act, the command shows whether this program is alive, dead or unknown, and shows the evidence.

With --fix, the command shows the remedies that it can apply itself, and for each remedy the requests, the risk and a digest. The digest is
a checksum of the remedy. To apply a remedy, add --confirm with the digest. The command then diagnoses the namespace again, and applies the
remedy only if the digest is still the same. You need the permissions for the requests.

Each request contains the UID and the resourceVersion of an object. kube-apiserver refuses the request if this object has changed. The
remedy for OrphanedContent is different, because the namespace does not exist. The requests create the namespace, and delete the new
namespace by its UID. For OrphanedContent, the digest therefore covers the UIDs of the content that you can list, and the names of the
resources that you cannot list.

The exit code is 0 if no namespace waits for anything, 2 if something is in progress, and 3 if a user has to act. It is 1 if the namespace
does not exist, or if the command cannot determine the state.

With --if-deleted, the exit code is 2 if something would delay a deletion, 3 if something would block a deletion, and 0 otherwise. With
--watch, the exit code is 0 when the namespace is healthy or removed. If you interrupt a watch, the exit code shows the last state. With
--fix, the exit code is 1 if the command cannot apply the remedy, and 0 otherwise.`

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

  # Apply the remedy with this digest, if nothing has changed
  kubectl nsinit why shop --fix --confirm=0123456789abcdef

  # Print only the causes, for a script
  kubectl nsinit why shop --output=json | jq --raw-output '.findings[] | "\(.state) \(.cause): \(.message)"'

  # Show what the namespace controller cannot delete, although you can
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
		Short:             "Show why a namespace does not open or does not terminate",
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
	command.Flags().BoolVarP(&o.Watch, "watch", "w", o.Watch, "Print a line for each change. The command ends when the namespace is healthy or removed. With --all, it runs until you interrupt it.")
	command.Flags().BoolVar(&o.Fix, "fix", o.Fix, "Show the remedies that the command can apply, with the requests and a digest.")
	command.Flags().StringVar(&o.Confirm, "confirm", o.Confirm, "With --fix, apply the remedy that has this digest. The command applies nothing if the digest has changed.")
	o.DryRun.AddFlag(command)
	cmdutil.DurationVar(command.Flags(), &o.Patience, "patience", diagnosis.DefaultPatience, "How long a step may take before the command reports the step as stuck.")
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
