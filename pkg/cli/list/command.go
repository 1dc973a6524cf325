/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package list is the command kubectl nsinit list: it lists the namespaces that the user has the permission to get.
package list

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
)

const long = `List the namespaces that you have the permission to get. You need no permission to list all namespaces of the cluster.

By default, the command shows an initializing namespace only to the creator of the namespace. With --all, the command shows every
initializing namespace that you have the permission to get.

You need the permission to list AccessibleNamespaces. The ClusterRole nsinit:tenant contains this permission.`

const example = `  # Show your namespaces
  kubectl nsinit list

  # Show your namespaces, and then each namespace that opens
  kubectl nsinit list --watch

  # Print the names of the namespaces that are open
  kubectl nsinit list --output=jsonpath='{.items[?(@.status.phase=="Active")].metadata.name}'`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	All   bool
	Watch bool
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}}
	o.PrintFlags.Wide = true
	command := cmdutil.NewCommand(f, o, &cobra.Command{Use: "list", Short: "List the namespaces that you have the permission to get", Long: long, Example: example})
	command.Flags().BoolVarP(&o.All, "all", "A", o.All, "Also show initializing namespaces that other users created.")
	command.Flags().BoolVarP(&o.Watch, "watch", "w", o.Watch, "After the list, show each change. The server ends the watch after 30 to 60 minutes.")
	return command
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	request := o.Clients.REST.Get().Resource("accessiblenamespaces")
	if o.All { // a selector on the phase includes them
		request.Param("fieldSelector", fields.OneTermNotEqualSelector("status.phase", "").String())
	}
	var err error
	if o.Watch {
		err = o.PrintWatch(ctx, request)
	} else {
		err = o.PrintList(ctx, request, "You have no permission to get a namespace.")
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; an administrator can grant this with the ClusterRole nsinit:tenant", err)
	}
	return err
}
