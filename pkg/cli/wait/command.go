/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package wait holds the commands kubectl nsinit wait and create: they wait until namespaces are open or deleted.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const long = `Wait until namespaces are open, so that you can write to the namespaces. With --for=gone, the command waits until namespaces are removed
from storage.

You need the permission to get the namespaces or their AccessibleNamespaces. If you lose this permission while a namespace is deleted, the
command checks with a dry run whether you could create the namespace again. This check needs the permission to create namespaces, and fails
if a policy refuses the new namespace.

The exit code is 0 if every namespace is open or, with --for=gone, removed. It is 1 if a namespace does not reach this state within
--timeout. It is also 1 if a namespace cannot open because the initialization failed or because the namespace is being deleted. In these
cases, the command ends immediately.`

const example = `  # Wait until you can write to the namespace shop
  kubectl nsinit wait shop

  # Wait until two namespaces are removed
  kubectl nsinit wait shop depot --for=gone --timeout=10m`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	For     string
	Timeout time.Duration
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("is ", scheme.Scheme)}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "wait NAMESPACE...",
		Short:   "Wait until namespaces are open, or until namespaces are removed",
		Long:    long,
		Example: example,
		ValidArgsFunction: cmdutil.CompleteNamespaces(f, func(namespace *corev1.Namespace) bool {
			terminating := namespace.DeletionTimestamp != nil
			return terminating == (o.For == "gone") && (terminating || helper.IsClosed(namespace))
		}),
	})
	command.Flags().StringVar(&o.For, "for", "open", `The state to wait for: "open" or "gone".`)
	cmdutil.CompleteFlag(command, "for", "open", "gone")
	cmdutil.DurationVar(command.Flags(), &o.Timeout, "timeout", 5*time.Minute, "How long to wait for all namespaces together. 0 waits indefinitely.")
	return command
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() error {
	if o.For != "open" && o.For != "gone" {
		return fmt.Errorf(`--for=%s: must be "open" or "gone"`, o.For)
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	o.PrintFlags.NamePrintFlags.Operation += o.For
	printer, err := o.PrintFlags.ToPrinter()
	if err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for _, name := range o.Args {
		namespace, err := o.follow(ctx, name)
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		if err := printer.PrintObj(namespace, o.Out); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) follow(ctx context.Context, name string) (*corev1.Namespace, error) {
	f := newFollower(o.Clients, o.PrintFlags.Lasting(o.IOStreams), o.ErrOut)
	if o.For == "gone" {
		return f.untilGone(ctx, name)
	}
	return f.untilOpen(ctx, name, "")
}
