/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command policy-population is an initializer that puts what NamespacePopulations hold into
// every new namespace: RBAC, quota, network policy, or whatever else a platform team wants in
// place before tenants can act.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/nsinit/nsinit/pkg/population/command"
)

func main() {
	c := command.New()
	c.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(c))
}
