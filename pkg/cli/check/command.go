/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package check is the command kubectl nsinit check: is the installation sound.
package check

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/cli/exit"
	"github.com/nsinit/nsinit/pkg/cli/output"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

const (
	exitWarning exit.Code = 2
	exitProblem exit.Code = 3
)

const long = `Look whether nsinit is installed as it should be: the version of Kubernetes, the API and its certificates, the controllers,
what the policies depend on, the policies themselves, and whether a new namespace would be closed.

Nothing is changed: what is tried is tried with dry-run. The exit code is 0 if everything is in order, 2 if there are warnings, 3 if
there are problems, and 1 if the cluster cannot be reached.`

const example = `  # Is everything in order?
  kubectl nsinit check

  # What is not, for a program
  kubectl nsinit check --output=json | jq '.[] | select(.state != "OK")'`

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags, format := cluster.NewFlags(), output.Format("")
	command := &cobra.Command{
		Use:               "check",
		Short:             "Look whether nsinit is installed as it should be",
		Long:              long,
		Example:           example,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), streams, flags, format)
		},
	}
	flags.AddFlags(command.Flags())
	format.AddFlag(command)
	return command
}

func run(ctx context.Context, streams genericiooptions.IOStreams, flags *cluster.Flags, format output.Format) error {
	if err := format.Validate(); err != nil {
		return err
	}
	config, err := flags.Config()
	if err != nil {
		return err
	}
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	if _, err := clients.core.Discovery().ServerVersion(); err != nil {
		return fmt.Errorf("the cluster cannot be reached: %w", err)
	}
	results := inspect(ctx, *clients, time.Now())
	if err := format.Print(streams.Out, results, func(out io.Writer) error { return printText(out, results) }); err != nil {
		return err
	}
	worst := OK
	for _, result := range results {
		if result.State == Problem || worst == OK {
			worst = result.State
		}
	}
	switch worst {
	case Problem:
		return exitProblem
	case Warning:
		return exitWarning
	}
	return nil
}

func newClients(config *rest.Config) (*clients, error) {
	core, nsinit, err := cluster.ClientsFor(config)
	if err != nil {
		return nil, err
	}
	apis, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &clients{core: core, nsinit: nsinit, apis: apis, dynamic: objects,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery()))}, nil
}

// printText prints a line for each finding, and below it what helps.
func printText(out io.Writer, results []Result) error {
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "CHECK\tSTATE\tFOUND")
	for _, result := range results {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", result.Check, result.State, printable.Line(result.Message))
		if result.Remedy != "" {
			_, _ = fmt.Fprintf(table, "\t\t  helps: %s\n", result.Remedy)
		}
	}
	return table.Flush()
}
