/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	apiserver "github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/controllermanager"
	population "github.com/nsinit/nsinit/pkg/population/options"
)

const flagsHeader = `# Flags of the programs

` + written + `
This page lists the flags of each program: first the flags of nsinit, then the flags of Kubernetes' libraries. For the flags of the kubectl
plugin, see the [pages of its commands](plugin/README.md).
`

// flagsPage returns the page of the flags of the programs.
func flagsPage() (string, error) {
	var page strings.Builder
	fmt.Fprintf(&page, flagsHeader, "the flags of the programs")
	for _, program := range []struct {
		command *cobra.Command
		// options add the flags of Kubernetes' libraries.
		options []interface{ AddFlags(flags *pflag.FlagSet) }
		elected bool
	}{
		{apiserver.NewCommand(), []interface{ AddFlags(flags *pflag.FlagSet) }{genericoptions.NewRecommendedOptions("", nil), universal{}}, false},
		{controllermanager.NewCommand(), []interface{ AddFlags(flags *pflag.FlagSet) }{
			genericoptions.NewSecureServingOptions(), genericoptions.NewDelegatingAuthenticationOptions(), genericoptions.NewDelegatingAuthorizationOptions(),
		}, true},
		{population.NewCommand(), nil, false},
	} {
		ofKubernetes := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, o := range program.options {
			o.AddFlags(ofKubernetes)
		}
		if program.elected {
			componentbaseoptions.BindLeaderElectionFlags(&config.LeaderElectionConfiguration{}, ofKubernetes)
		}
		logsapi.AddFlags(logs.NewOptions(), ofKubernetes)
		fmt.Fprintf(&page, "\n## %s\n", program.command.Name())
		printFlags(&page, program.command.Flags(), func(name string) bool { return ofKubernetes.Lookup(name) == nil })
		for _, command := range subcommands(program.command) {
			fmt.Fprintf(&page, "\n### %s\n\n%s.\n", command.CommandPath(), command.Short)
			printFlags(&page, command.NonInheritedFlags(), func(string) bool { return true })
		}
		fmt.Fprintf(&page, "\n### %s: flags of Kubernetes' libraries\n", program.command.Name())
		printFlags(&page, program.command.Flags(), func(name string) bool { return ofKubernetes.Lookup(name) != nil })
	}
	return page.String(), nil
}

// universal adds the flags that every API server has.
type universal struct{}

func (universal) AddFlags(flags *pflag.FlagSet) {
	genericoptions.NewServerRunOptions().AddUniversalFlags(flags)
}

// subcommands returns the commands below a command that a user can run.
func subcommands(command *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range command.Commands() {
		all = append(append(all, child), subcommands(child)...)
	}
	return all
}

// printFlags prints a table of the flags that are included.
func printFlags(page *strings.Builder, flags *pflag.FlagSet, include func(name string) bool) {
	empty := true
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || !include(flag.Name) {
			return
		}
		if empty {
			page.WriteString("\n| flag | default | description |\n| --- | --- | --- |\n")
			empty = false
		}
		value := ""
		if !slices.Contains([]string{"", "0", "0s", "false", "[]", "<nil>"}, flag.DefValue) {
			value = "`" + strings.Trim(flag.DefValue, "[]") + "`"
		}
		fmt.Fprintf(page, "| `--%s` | %s | %s |\n", flag.Name, value, cell(flag.Usage))
	})
}
