/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/installation"
)

// NewCommand returns the command nsinit-apiserver. It runs until its context ends.
func NewCommand() *cobra.Command {
	o := New()
	command := &cobra.Command{
		Use:   installation.APIServer,
		Short: "Serve the API group nsinit.dev",
		Long: "nsinit-apiserver serves NamespaceInitializerConfigurations, NamespaceLifecycles, NamespacePopulations and PopulatedNamespaces through the aggregation layer. " +
			"It stores them in an embedded etcd, which the command etcd runs, or in an etcd cluster.",
		Version:       version.Get().String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := o.Registry.Set(); err != nil {
				return fmt.Errorf("--emulated-version or --feature-gates: %w", err)
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(o.Logs, nil); err != nil {
				return err
			}
			cliflag.PrintFlags(command.Flags())
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.RunServer(command.Context())
		},
	}
	o.AddFlags(command.Flags())
	command.AddCommand(newEtcdCommand(), newStorageCommand())
	return command
}

// RunServer runs the server until the context ends. The server serves discovery while etcd does not run.
func (o *Options) RunServer(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.Extra.Stop = cancel
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	if err := server.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled { //nolint:errorlint // identity is meant
		return cause
	}
	klog.FromContext(ctx).Info("nsinit-apiserver has stopped")
	return nil
}
