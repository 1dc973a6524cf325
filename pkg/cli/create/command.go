/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package create is the command kubectl nsinit create: a namespace, and the wait until it is
// open.
package create

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/cli/dryrun"
	"github.com/nsinit/nsinit/pkg/cli/follow"
)

const long = `Create a namespace, and wait until every initializer is done with it and it can be written to.

A line is printed for each initializer that is done; on a terminal, another one shows who is being waited for. It takes the
rights to create and to get the namespace, as every tenant has. Who may also read its record (namespacelifecycles) sees more.

The exit code is 0 once the namespace is open, and 1 if it could not be created, if its initialization failed, or if it is not
open within the time. It stays in the last case, and may open later.`

const example = `  # Create a namespace and wait until it is open
  kubectl nsinit create shop && kubectl -n shop apply -f shop.yaml

  # With a label, and no longer than a minute
  kubectl nsinit create shop --labels=team=a --timeout=1m`

// options are what the command was called with.
type options struct {
	streams     genericiooptions.IOStreams
	cluster     *cluster.Flags
	print       *genericclioptions.PrintFlags
	labels      map[string]string
	annotations map[string]string
	dryRun      *dryrun.Flag
	wait        bool
	timeout     time.Duration
}

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{
		streams: streams, cluster: cluster.NewFlags(), dryRun: dryrun.NewFlag(), wait: true, timeout: 5 * time.Minute,
		print: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme.Scheme),
	}
	command := &cobra.Command{
		Use:               "create NAME",
		Short:             "Create a namespace, and wait until it is open",
		Long:              long,
		Example:           example,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, args []string) error { return o.run(command.Context(), args[0]) },
	}
	o.cluster.AddFlags(command.Flags())
	o.print.AddFlags(command)
	command.Flags().StringToStringVarP(&o.labels, "labels", "l", nil, "Labels of the namespace, as key=value,key=value.")
	command.Flags().StringToStringVar(&o.annotations, "annotations", nil, "Annotations of the namespace, as key=value,key=value.")
	o.dryRun.AddFlag(command.Flags())
	command.Flags().BoolVar(&o.wait, "wait", o.wait, "Wait until the namespace is open.")
	command.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait. 0: for ever.")
	return command
}

func (o *options) run(ctx context.Context, name string) error {
	dry, err := o.dryRun.Options()
	if err != nil {
		return err
	}
	create := metav1.CreateOptions{FieldManager: "kubectl-nsinit-create", DryRun: dry}
	if dry != nil {
		o.wait = false
		if err := o.print.Complete("%s (server dry run)"); err != nil {
			return err
		}
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout=%s: give a duration that is not negative", o.timeout)
	}
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	core, nsinit, err := o.cluster.Clients()
	if err != nil {
		return err
	}
	namespace, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: o.labels, Annotations: o.annotations,
	}}, create)
	if apierrors.IsAlreadyExists(err) {
		if existing, getErr := core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); getErr == nil && helper.IsClosed(existing) {
			return fmt.Errorf("%w, and is not open yet: run kubectl nsinit wait %s", err, name)
		}
	}
	if err != nil {
		return err
	}
	text := *o.print.OutputFormat == ""
	if text || !o.wait {
		if err := printer.PrintObj(namespace, o.streams.Out); err != nil {
			return err
		}
	}
	if !o.wait {
		return nil
	}
	lasting := o.streams.Out
	if !text {
		lasting = o.streams.ErrOut // the object alone goes to the other one
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	reporter := follow.NewReporter(lasting, o.streams.ErrOut, clock.RealClock{})
	follower := follow.Follower{Core: core, Nsinit: nsinit, Clock: clock.RealClock{}, Seen: reporter.Seen}
	began := time.Now()
	opened, err := follower.UntilOpen(ctx, name, namespace.UID)
	reporter.End()
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; namespace %q stays, and opens by itself", name)
	case err != nil:
		return err
	case !text:
		return printer.PrintObj(opened, o.streams.Out)
	}
	_, err = fmt.Fprintf(o.streams.Out, "namespace/%s is open after %s\n", name, time.Since(began).Round(10*time.Millisecond))
	return err
}
