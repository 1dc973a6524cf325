/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command nsinit-controller-manager runs the controllers of nsinit.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the metric of the version

	"github.com/nsinit/nsinit/pkg/controllermanager"
)

func main() {
	command := controllermanager.NewCommand()
	command.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(command))
}
