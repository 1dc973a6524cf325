/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cmdutil holds what the commands share: clients, flags, output, completion and errors.
package cmdutil

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

// Options are the options of a command, in kubectl's shape. They embed Base, which NewCommand completes.
type Options interface {
	// Validate checks flags and arguments. It sends no request.
	Validate() error
	// Run runs the command.
	Run(ctx context.Context) error
	// Common returns the options that every command has.
	Common() *Base
}

// Base is what the options of every command have.
type Base struct {
	genericiooptions.IOStreams
	PrintFlags *PrintFlags
	Clients    *Clients
	Args       []string
	// DryRun is the flag of commands that write.
	DryRun DryRun
	// Config changes the configuration of the clients. Offline, if it is not nil, says that the command needs none.
	Config  []func(*rest.Config)
	Offline func() bool
}

// Common implements Options.
func (b *Base) Common() *Base { return b }

// complete takes the arguments, and the clients if the command needs a cluster.
func (b *Base) complete(f Factory, args []string) (err error) {
	b.Args = args
	if names := b.PrintFlags.NamePrintFlags; names != nil {
		names.Operation += b.DryRun.Suffix()
	}
	if b.Offline == nil || !b.Offline() {
		b.Clients, err = f(b.Config...)
	}
	return err
}

// Validate implements Options.
func (b *Base) Validate() error { return b.PrintFlags.Validate() }

// NewCommand makes a command complete, validate and run options, and adds the flags for the output. By default, the
// command accepts the arguments of its usage line.
func NewCommand(f Factory, o Options, command *cobra.Command) *cobra.Command {
	if command.Args == nil {
		command.Args = Args
	}
	if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = cobra.NoFileCompletions
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := o.Common().complete(f, args); err != nil {
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		return o.Run(command.Context())
	}
	o.Common().PrintFlags.AddFlags(command)
	return command
}

// Args checks arguments against the usage line of a command: NAME is required, [NAME] is optional, and NAME... is one
// or more. The error names the argument and shows the examples of the command.
func Args(command *cobra.Command, args []string) error {
	names := strings.Fields(command.Use)[1:]
	switch n := len(args); {
	case n < len(names) && !strings.HasPrefix(names[n], "["):
		return fmt.Errorf("the argument %s is missing; for example:\n%s", strings.TrimSuffix(names[n], "..."), command.Example)
	case n > len(names) && !strings.HasSuffix(command.Use, "..."):
		return fmt.Errorf("unexpected argument %q; for example:\n%s", args[len(names)], command.Example)
	}
	return nil
}

// ArgsUnless returns a function that checks arguments as Args does or, if a flag is set, accepts none for a reason.
func ArgsUnless(flag *bool, reason string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if !*flag {
			return Args(command, args)
		}
		if len(args) > 0 {
			return fmt.Errorf("unexpected argument %q: %s", args[0], reason)
		}
		return nil
	}
}
