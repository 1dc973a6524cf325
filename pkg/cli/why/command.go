/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package why is the command kubectl nsinit why: it shows a diagnosis of a namespace.
package why

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/cli/exit"
	"github.com/nsinit/nsinit/pkg/cli/output"
	"github.com/nsinit/nsinit/pkg/cli/progress"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

const (
	// exitWaiting and exitStuck are the exit codes of namespaces that are not healthy.
	exitWaiting exit.Code = 2
	exitStuck   exit.Code = 3
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

// options are what the command was called with.
type options struct {
	streams  genericiooptions.IOStreams
	cluster  *cluster.Flags
	output   output.Format
	patience time.Duration
	now      func() time.Time
}

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, cluster: cluster.NewFlags(), patience: diagnosis.DefaultPatience, now: time.Now}
	command := &cobra.Command{
		Use:               "why NAMESPACE",
		Short:             "Say why a namespace is not open, or not gone",
		Long:              long,
		Example:           example,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.cluster.CompleteNamespaces,
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args[0])
		},
	}
	o.cluster.AddFlags(command.Flags())
	o.output.AddFlag(command)
	command.Flags().DurationVar(&o.patience, "patience", o.patience, "How long something may take before it counts as stuck.")
	return command
}

func (o *options) run(ctx context.Context, namespace string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	if o.patience < 0 {
		return fmt.Errorf("--patience=%s: give a duration that is not negative", o.patience)
	}
	clients, err := o.clients()
	if err != nil {
		return err
	}
	line := progress.New(o.streams.ErrOut, clock.RealClock{})
	diagnoser := diagnosis.Diagnoser{Clients: *clients, Clock: clock.RealClock{}, Patience: o.patience, Progress: func(done, total int) {
		line.Show("looked at %d of %d resources in namespace %s", done, total, namespace)
	}}
	found, err := diagnoser.Diagnose(ctx, namespace)
	line.End()
	if err != nil {
		return err
	}
	if err := o.print(found); err != nil {
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

// clients reach the cluster that the flags name.
func (o *options) clients() (*diagnosis.Clients, error) {
	config, err := o.cluster.Config()
	if err != nil {
		return nil, err
	}
	// Everything is listed, in versions that nobody has chosen.
	config.WarningHandler = rest.NoWarnings{}
	core, nsinit, err := cluster.ClientsFor(config)
	if err != nil {
		return nil, err
	}
	apis, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &diagnosis.Clients{Core: core, Nsinit: nsinit, APIs: apis, Metadata: objects, Discover: func() ([]*metav1.APIResourceList, error) {
		return discovery.ServerPreferredNamespacedResources(core.Discovery())
	}}, nil
}
