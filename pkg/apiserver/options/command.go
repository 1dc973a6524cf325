/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/program"
)

// NewCommand returns the command nsinit-apiserver. It runs until its context ends.
func NewCommand() *cobra.Command {
	o := New()
	command := program.NewCommand(installation.APIServer, "Serve the API group nsinit.dev", o.Logs, o.RunServer, o.Complete, o.Validate)
	command.Long = "nsinit-apiserver serves NamespaceInitializerConfigurations, NamespaceLifecycles, NamespacePopulations and PopulatedNamespaces through the aggregation layer. " +
		"It stores them in an embedded etcd, which the command etcd runs, or in an etcd cluster. It also serves AccessibleNamespaces, which are not stored."
	command.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := o.Registry.Set(); err != nil {
			return fmt.Errorf("--emulated-version or --feature-gates: %w", err)
		}
		return nil
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
