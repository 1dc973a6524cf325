/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package wait is the command kubectl nsinit wait: until namespaces are open, or gone.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cluster"
	"github.com/nsinit/nsinit/pkg/cli/follow"
	"github.com/nsinit/nsinit/pkg/cli/output"
)

const long = `Wait until namespaces can be written to, or until they are gone.

It takes the right to get the namespaces, not to list or to watch them as kubectl wait does. A namespace whose initialization
fails is an error at once.

The exit code is 0 once all of them are, and 1 if one of them is not within the time, or never will be.`

const example = `  # Wait until the namespace shop can be written to
  kubectl nsinit wait shop

  # Wait until two namespaces are gone
  kubectl nsinit wait shop depot --for=gone --timeout=10m`

// options are what the command was called with.
type options struct {
	streams   genericiooptions.IOStreams
	cluster   *cluster.Flags
	condition string
	timeout   time.Duration
}

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, cluster: cluster.NewFlags(), condition: "open", timeout: 5 * time.Minute}
	command := &cobra.Command{
		Use:     "wait NAMESPACE...",
		Short:   "Wait until namespaces are open, or gone",
		Long:    long,
		Example: example,
		Args:    cobra.MinimumNArgs(1),
		ValidArgsFunction: o.cluster.CompleteSome(func(namespace *corev1.Namespace) bool {
			return helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil
		}),
		RunE: func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) },
	}
	o.cluster.AddFlags(command.Flags())
	command.Flags().StringVar(&o.condition, "for", o.condition, `What to wait for: "open" or "gone".`)
	output.Complete(command, "for", "open", "gone")
	command.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait for all of them. 0: for ever.")
	return command
}

func (o *options) run(ctx context.Context, names []string) error {
	if o.condition != "open" && o.condition != "gone" {
		return fmt.Errorf(`--for=%s: give "open" or "gone"`, o.condition)
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout=%s: give a duration that is not negative", o.timeout)
	}
	core, nsinit, err := o.cluster.Clients()
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	for _, name := range names {
		reporter := follow.NewReporter(o.streams.Out, o.streams.ErrOut, clock.RealClock{})
		follower := follow.Follower{Core: core, Nsinit: nsinit, Clock: clock.RealClock{}, Seen: reporter.Seen}
		if o.condition == "gone" {
			follower.Seen = func(sight follow.Sight) { reporter.SeenLeaving(sight) }
			err = follower.UntilGone(ctx, name)
		} else {
			_, err = follower.UntilOpen(ctx, name, "")
		}
		reporter.End()
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.streams.Out, "namespace/%s is %s\n", name, o.condition); err != nil {
			return err
		}
	}
	return nil
}
