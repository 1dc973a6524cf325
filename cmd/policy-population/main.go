/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command policy-population is an initializer that creates the objects of NamespacePopulations in every
// new namespace, such as RBAC, quota and network policies.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/nsinit/nsinit/pkg/population/options"
)

func main() {
	command := options.NewCommand()
	command.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(command))
}
