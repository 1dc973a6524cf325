/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cli

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

const versionLong = `Print the version of the plugin, and the version of nsinit-apiserver in the cluster. The command prints a warning if the minor versions
differ.

The command reads the version of nsinit-apiserver from the OpenAPI document of nsinit-apiserver. By default, every authenticated user may
read this document. If the command cannot read the version, the exit code is 1.`

const versionExample = `  # Print both versions
  kubectl nsinit version

  # Print only the version of nsinit-apiserver, for a script
  kubectl nsinit version --output=jsonpath={.serverVersion.gitVersion}`

// versionOptions are the options of the command kubectl nsinit version.
type versionOptions struct {
	cmdutil.Base
	client bool
}

// versions is what the command prints. The names of the fields are kubectl's.
type versions struct {
	metav1.TypeMeta `json:",inline"`
	ClientVersion   apimachineryversion.Info `json:"clientVersion"`
	// ServerVersion is nil if it cannot be read.
	ServerVersion *serverVersion `json:"serverVersion,omitempty"`
}

// serverVersion is the version of nsinit-apiserver.
type serverVersion struct {
	GitVersion string `json:"gitVersion"`
}

// newVersionCommand returns the command kubectl nsinit version.
func newVersionCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &versionOptions{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewReportFlags()}}
	o.Offline = func() bool { return o.client }
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the plugin and of nsinit-apiserver",
		Long:    versionLong,
		Example: versionExample,
	})
	command.Flags().BoolVar(&o.client, "client", false, "Print only the version of the plugin, without contacting a cluster.")
	return command
}

// Run implements cmdutil.Options.
func (o *versionOptions) Run(ctx context.Context) error {
	found := &versions{TypeMeta: metav1.TypeMeta{Kind: "Version", APIVersion: cmdutil.APIVersion}, ClientVersion: version.Get()}
	var serverErr error
	if !o.client {
		var server string
		if server, serverErr = o.Clients.ServerVersion(ctx); serverErr == nil {
			found.ServerVersion = &serverVersion{GitVersion: server}
		}
	}
	if err := o.PrintFlags.Print(o.Out, found, found.text); err != nil {
		return err
	}
	if serverErr != nil {
		return fmt.Errorf("cannot read the version of nsinit-apiserver: %w", serverErr)
	}
	if found.differ() {
		_, _ = fmt.Fprintf(o.ErrOut, "WARNING: the minor versions of the plugin (%s) and of nsinit-apiserver (%s) differ: install the plugin of the server's version\n",
			found.ClientVersion.GitVersion, found.ServerVersion.GitVersion)
	}
	return nil
}

func (v *versions) text(out io.Writer) error {
	_, err := fmt.Fprintf(out, "Client Version: %s\n", v.ClientVersion.GitVersion)
	if v.ServerVersion != nil && err == nil {
		_, err = fmt.Fprintf(out, "Server Version: %s\n", v.ServerVersion.GitVersion)
	}
	return err
}

// differ reports whether both versions are known, and their major or minor versions differ.
func (v *versions) differ() bool {
	if v.ServerVersion == nil {
		return false
	}
	client, clientErr := utilversion.ParseGeneric(v.ClientVersion.GitVersion)
	server, serverErr := utilversion.ParseGeneric(v.ServerVersion.GitVersion)
	return clientErr == nil && serverErr == nil && (client.Major() != server.Major() || client.Minor() != server.Minor())
}
