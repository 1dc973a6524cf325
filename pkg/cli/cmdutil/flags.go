/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// DryRun is the flag --dry-run of commands that write: "none" or "server".
type DryRun bool

// AddFlag adds the flag to a command.
func (d *DryRun) AddFlag(command *cobra.Command) {
	command.Flags().Var(d, "dry-run", `Must be "none" or "server". With "server", the server checks the request and stores nothing.`)
	CompleteFlag(command, "dry-run", "none", "server")
}

// String implements pflag.Value.
func (d *DryRun) String() string {
	if *d {
		return "server"
	}
	return "none"
}

// Set implements pflag.Value.
func (d *DryRun) Set(value string) error {
	if value != "none" && value != "server" {
		return errors.New(`must be "none" or "server"`)
	}
	*d = value == "server"
	return nil
}

// Type implements pflag.Value.
func (*DryRun) Type() string { return "string" }

// Options returns the field dryRun of a request.
func (d *DryRun) Options() []string {
	if *d {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix returns what is printed after the message of a command.
func (d *DryRun) Suffix() string {
	if *d {
		return " (server dry run)"
	}
	return ""
}

// duration is the value of a flag. It is not negative.
type duration struct{ *time.Duration }

// DurationVar adds a flag for a duration that is not negative.
func DurationVar(flags *pflag.FlagSet, value *time.Duration, name string, initial time.Duration, usage string) {
	*value = initial
	flags.Var(duration{value}, name, usage)
}

// Set implements pflag.Value.
func (d duration) Set(text string) (err error) {
	if *d.Duration, err = time.ParseDuration(text); err == nil && *d.Duration < 0 {
		err = errors.New("must not be negative")
	}
	return err
}

// Type implements pflag.Value.
func (duration) Type() string { return "duration" }

// WithTimeout returns a context that ends after a timeout, and never for 0.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// Ended returns why a context has ended, or nil. On a busy machine, its timer can be late: requests after the deadline fail nevertheless.
func Ended(ctx context.Context) error {
	if deadline, has := ctx.Deadline(); ctx.Err() == nil && has && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// CompleteFlag offers the values that a flag of a command can have.
func CompleteFlag(command *cobra.Command, flag string, values ...string) {
	// It is an error to complete a flag that does not exist, or twice: neither depends on input.
	utilruntime.Must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// CompleteNamespace offers every namespace for the first argument.
func CompleteNamespace(f Factory) cobra.CompletionFunc {
	return completeNamespaces(f, 1, func(*corev1.Namespace) bool { return true })
}

// CompleteNamespaces offers the namespaces for which offered is true, except those among the arguments.
func CompleteNamespaces(f Factory, offered func(*corev1.Namespace) bool) cobra.CompletionFunc {
	return completeNamespaces(f, math.MaxInt, offered)
}

func completeNamespaces(f Factory, most int, offered func(*corev1.Namespace) bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		clients, err := f()
		if err != nil || len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespaces, err := clients.namespaces(command.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i := range namespaces {
			if namespace := &namespaces[i]; offered(namespace) && !slices.Contains(args, namespace.Name) {
				names = append(names, namespace.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namespaces returns the namespaces that the user may list, or else get.
func (c *Clients) namespaces(ctx context.Context) (found []corev1.Namespace, err error) {
	namespaces, err := c.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		return namespaces.Items, err
	}
	// A selector on the phase includes those that are being initialized.
	accessible, err := c.Nsinit.NsinitV1alpha1().AccessibleNamespaces().List(ctx, metav1.ListOptions{FieldSelector: "status.phase!="})
	if err != nil {
		return nil, err
	}
	for i := range accessible.Items {
		found = append(found, *utilnamespaces.FromAccessible(&accessible.Items[i]))
	}
	return found, nil
}
