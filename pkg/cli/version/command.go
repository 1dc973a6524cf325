/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package version is the command kubectl nsinit version: it prints the versions of the plugin and of nsinit-apiserver.
package version

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
)

const long = `Print the version of the plugin, and of the nsinit-apiserver in the cluster. A warning shows if the minor versions differ.

The version of nsinit-apiserver is part of its OpenAPI document, which every authenticated user may read by default. The exit code is 1
if it cannot be read.`

const example = `  # Both versions
  kubectl nsinit version

  # The version of nsinit-apiserver only, for a program
  kubectl nsinit version --output=jsonpath={.serverVersion.gitVersion}`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	Client bool
}

// Versions is what the command prints. The names of the fields are kubectl's.
type Versions struct {
	metav1.TypeMeta `json:",inline"`
	ClientVersion   apimachineryversion.Info `json:"clientVersion"`
	// ServerVersion is nil if it cannot be read.
	ServerVersion *ServerVersion `json:"serverVersion,omitempty"`
}

// ServerVersion is the version of nsinit-apiserver.
type ServerVersion struct {
	GitVersion string `json:"gitVersion"`
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the plugin and of nsinit-apiserver",
		Long:    long,
		Example: example,
	})
	command.Flags().BoolVar(&o.Client, "client", o.Client, "Print the version of the plugin only. This needs no cluster.")
	return command
}

// Complete implements cmdutil.Options.
func (o *Options) Complete(f cmdutil.Factory, args []string) error {
	if o.Client {
		return nil
	}
	return o.Base.Complete(f, args)
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error {
	versions := &Versions{TypeMeta: metav1.TypeMeta{Kind: "Version", APIVersion: cmdutil.APIVersion}, ClientVersion: version.Get()}
	var serverErr error
	if !o.Client {
		var server string
		if server, serverErr = o.Clients.ServerVersion(ctx); serverErr == nil {
			versions.ServerVersion = &ServerVersion{GitVersion: server}
		}
	}
	if err := o.PrintFlags.Print(o.Out, versions, versions.text); err != nil {
		return err
	}
	if serverErr != nil {
		return fmt.Errorf("cannot read the version of nsinit-apiserver: %w", serverErr)
	}
	if versions.differ() {
		_, _ = fmt.Fprintf(o.ErrOut, "WARNING: the minor versions of the plugin (%s) and of nsinit-apiserver (%s) differ: install the plugin of the server's version\n",
			versions.ClientVersion.GitVersion, versions.ServerVersion.GitVersion)
	}
	return nil
}

func (v *Versions) text(out io.Writer) error {
	_, err := fmt.Fprintf(out, "Client Version: %s\n", v.ClientVersion.GitVersion)
	if v.ServerVersion != nil && err == nil {
		_, err = fmt.Fprintf(out, "Server Version: %s\n", v.ServerVersion.GitVersion)
	}
	return err
}

// differ reports whether both versions are known, and their major or minor versions differ.
func (v *Versions) differ() bool {
	if v.ServerVersion == nil {
		return false
	}
	client, clientErr := utilversion.ParseGeneric(v.ClientVersion.GitVersion)
	server, serverErr := utilversion.ParseGeneric(v.ServerVersion.GitVersion)
	return clientErr == nil && serverErr == nil && (client.Major() != server.Major() || client.Minor() != server.Minor())
}
