/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command http-provisioner is an initializer that provisions a resource outside of the cluster for every
// new namespace, such as an index in a log store, and deprovisions it when the namespace is deleted.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/nsinit/nsinit/vendor-hooks/http-provisioner/internal/command"
)

func main() {
	c := command.New()
	c.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(c))
}
