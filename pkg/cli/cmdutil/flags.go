/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun is the flag --dry-run of commands that write: "none" or "server".
type DryRun string

// AddFlag adds the flag to a command.
func (d *DryRun) AddFlag(command *cobra.Command) {
	command.Flags().StringVar((*string)(d), "dry-run", "none", `"none", or "server" to have the request checked and nothing stored.`)
	CompleteFlag(command, "dry-run", "none", "server")
}

// Validate returns an error for another value.
func (d DryRun) Validate() error {
	if d != "none" && d != "server" {
		return fmt.Errorf(`--dry-run=%s: give "none" or "server"`, string(d))
	}
	return nil
}

// Options returns the field dryRun of a request.
func (d DryRun) Options() []string {
	if d == "server" {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix returns what is printed after the message of a command.
func (d DryRun) Suffix() string {
	if d == "server" {
		return " (server dry run)"
	}
	return ""
}

// ValidateDuration returns an error for a negative value of a flag.
func ValidateDuration(flag string, value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("--%s=%s: give a duration that is not negative", flag, value)
	}
	return nil
}

// WithTimeout returns a context that ends after a timeout, and never for 0.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
