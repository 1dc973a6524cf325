/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package why is the command kubectl nsinit why: it shows a diagnosis of a namespace.
package why

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/cli/progress"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

const (
	// exitWaiting and exitStuck are the exit codes of namespaces that are not healthy.
	exitWaiting cmdutil.ExitCode = 2
	exitStuck   cmdutil.ExitCode = 3
)

const long = `Say where a namespace stands, what it waits for, and what helps.

It answers for any namespace that is being initialized or deleted, on any cluster, with or without nsinit. It changes nothing:
deletions are tried with dry-run alone. What you may not read is listed as not examined.

For each cause it shows the commands that help, the safest first, and what may be lost by the others. Commands that change what
kubectl itself cannot write to need jq.

The exit code is 0 if nothing is waited for, 2 if something is under way, 3 if somebody has to do something, and 1 if there is
no such namespace or nobody can tell.`

const example = `  # Why does the namespace shop not open, or not go away?
  kubectl nsinit why shop

  # The causes alone, for a program
  kubectl nsinit why shop --output=json | jq --raw-output '.findings[] | "\(.state) \(.cause): \(.message)"'

  # What keeps the namespace controller from deleting what you could delete
  kubectl nsinit why shop --as=system:serviceaccount:kube-system:namespace-controller`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Patience time.Duration
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	command := &cobra.Command{
		Use:               "why NAMESPACE",
		Short:             "Say why a namespace is not open, or not gone",
		Long:              long,
		Example:           example,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cmdutil.CompleteNamespace(f),
		RunE:              cmdutil.RunE(f, o),
	}
	o.PrintFlags.AddFlags(command)
	command.Flags().DurationVar(&o.Patience, "patience", diagnosis.DefaultPatience, "How long something may take before it counts as stuck.")
	return command
}

// Complete implements cmdutil.Options.
func (o *Options) Complete(f cmdutil.Factory, args []string) (err error) {
	o.Args = args
	// Every resource is listed, also in versions that are deprecated.
	o.Clients, err = f(cmdutil.WithoutWarnings)
	return err
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	if err := cmdutil.ValidateDuration("patience", o.Patience); err != nil {
		return err
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	clients := diagnosis.Clients{Core: o.Clients.Core, Nsinit: o.Clients.Nsinit, APIs: o.Clients.APIs, Metadata: o.Clients.Metadata,
		Discover: func() ([]*metav1.APIResourceList, error) {
			return discovery.ServerPreferredNamespacedResources(o.Clients.Core.Discovery())
		}}
	line := progress.New(o.ErrOut, o.Clients.Clock)
	diagnoser := diagnosis.Diagnoser{Clients: clients, Clock: o.Clients.Clock, Patience: o.Patience, Progress: func(done, total int) {
		line.Show("looked at %d of %d resources in namespace %s", done, total, o.Args[0])
	}}
	found, err := diagnoser.Diagnose(ctx, o.Args[0])
	line.End()
	if err != nil {
		return err
	}
	if err := o.PrintFlags.Print(o.Out, found, func(out io.Writer) error { return o.text(out, found) }); err != nil {
		return err
	}
	switch found.State {
	case diagnosis.Waiting:
		return exitWaiting
	case diagnosis.Stuck:
		return exitStuck
	}
	return nil
}
