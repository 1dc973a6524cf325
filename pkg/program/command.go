/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package program

import (
	"context"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
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
