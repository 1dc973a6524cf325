/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package program

import (
	"context"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// NewCommand returns a command with the flags of its logs, which runs until its context ends. prepare is called before, in order, with
// the flags parsed.
func NewCommand(name, short string, logs *logs.Options, run func(context.Context) error, prepare ...func() error) *cobra.Command {
	command := &cobra.Command{
		Use:           name,
		Short:         short,
		Version:       version.Get().String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logs, nil); err != nil {
				return err
			}
			cliflag.PrintFlags(command.Flags())
			LimitMemory(command.Context())
			for _, step := range prepare {
				if err := step(); err != nil {
					return err
				}
			}
			return run(command.Context())
		},
	}
	logsapi.AddFlags(logs, command.Flags())
	return command
}

// LimitMemory makes the garbage collector run more often when the program uses nine tenths of the memory limit of its container: before the
// kernel kills it. GOMEMLIMIT takes precedence.
func LimitMemory(ctx context.Context) {
	limit, err := memlimit.Set()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the memory limit of the container: without GOMEMLIMIT, the program may use more")
		return
	}
	klog.FromContext(ctx).V(2).Info("Set the memory limit of the Go runtime", "bytes", limit)
}
