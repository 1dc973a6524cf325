/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	baseversion "k8s.io/component-base/version"

	"github.com/nsinit/nsinit/pkg/cli/act"
	"github.com/nsinit/nsinit/pkg/cli/check"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/cli/list"
	"github.com/nsinit/nsinit/pkg/cli/off"
	"github.com/nsinit/nsinit/pkg/cli/plan"
	"github.com/nsinit/nsinit/pkg/cli/preview"
	"github.com/nsinit/nsinit/pkg/cli/rbac"
	"github.com/nsinit/nsinit/pkg/cli/static"
	"github.com/nsinit/nsinit/pkg/cli/status"
	"github.com/nsinit/nsinit/pkg/cli/wait"
	"github.com/nsinit/nsinit/pkg/cli/why"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// NewCommand returns the command with its subcommands.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-nsinit",
		Short: "Create namespaces, and manage their initialization and deletion",
		Long: "kubectl nsinit creates namespaces, shows what namespaces wait for, and manages their initialization and deletion.\n\n" +
			"kubectl nsinit is a kubectl plugin: kubectl finds the program kubectl-nsinit in the folders of PATH.",
		// kubectl shows plugins under this name.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nsinit"},
		Version:       baseversion.Get().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	f := cmdutil.NewFactory(command.PersistentFlags(), streams.ErrOut)
	for _, newCommand := range []func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command{
		wait.NewCreateCommand, wait.NewCommand, list.NewCommand, status.NewCommand, why.NewCommand, plan.NewCommand, preview.NewCommand, check.NewCommand, rbac.NewCommand,
		newVersionCommand, act.NewDoneCommand, act.NewSkipCommand, act.NewFailCommand, act.NewFinalizeCommand, act.NewFreezeCommand, act.NewUnfreezeCommand,
		off.NewOffCommand, off.NewOnCommand, static.NewCommand,
	} {
		command.AddCommand(newCommand(f, streams))
	}
	command.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, command.CommandPath())
	})
	// The flags of a command come first, then those that all commands share.
	command.SetUsageTemplate(strings.NewReplacer("Global Flags:", "Connection flags:",
		".HasAvailableLocalFlags", ".LocalNonPersistentFlags.HasAvailableFlags", ".LocalFlags.", ".LocalNonPersistentFlags.").Replace(command.UsageTemplate()))
	return command
}

// Run runs a command, writes an error to the error stream, and returns the exit code.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args ...string) int {
	command := NewCommand(streams)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	var code cmdutil.ExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	var request *url.Error
	if errors.As(err, &request) && utilnet.IsConnectionRefused(err) {
		if server, parseErr := url.Parse(request.URL); parseErr == nil {
			err = fmt.Errorf("the connection to the server %s was refused - did you specify the right host or port?", server.Host)
		}
	}
	if apierrors.IsNotFound(err) && strings.Contains(err.Error(), "could not find the requested resource") && strings.Contains(err.Error(), v1alpha1.GroupName) {
		err = fmt.Errorf("%w: %w", err, cmdutil.ErrNotRegistered)
	}
	text := printable.Lines(err.Error())
	var status apierrors.APIStatus
	if errors.As(err, &status) { // the message is of the server, of an admission webhook, or of a policy
		text = printable.Line(text)
	}
	_, _ = fmt.Fprintf(streams.ErrOut, "error: %s\n", text)
	return 1
}
