/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cmdutil holds what the commands share: clients, flags, output, completion and errors.
package cmdutil

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Options are the options of a command, in kubectl's shape.
type Options interface {
	// Complete takes the arguments, and the clients if the command needs a cluster.
	Complete(f Factory, args []string) error
	// Validate checks flags and arguments. It sends no request.
	Validate() error
	// Run runs the command.
	Run(ctx context.Context) error
}

// Base is what the options of most commands have.
type Base struct {
	genericiooptions.IOStreams
	PrintFlags *PrintFlags
	Clients    *Clients
	Args       []string
}

// Complete implements Options.
func (b *Base) Complete(f Factory, args []string) (err error) {
	b.Args = args
	b.Clients, err = f()
	return err
}

// Validate implements Options.
func (b *Base) Validate() error { return b.PrintFlags.Validate() }

// RunE completes, validates and runs options.
func RunE(f Factory, o Options) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		if err := o.Complete(f, args); err != nil {
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		return o.Run(command.Context())
	}
}
