/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command http-provisioner is an initializer that provisions a resource outside of the cluster for every
// new namespace, such as an index in a log store, and deprovisions it when the namespace is deleted.
package main

import (
	"context"
	"errors"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/nsinit/nsinit/pkg/program"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/timing"
	"github.com/nsinit/nsinit/vendor-hooks/http-provisioner/internal/provisioner"
)

const (
	name = "http-provisioner"
	// workers wait for a server most of the time.
	workers = 16
)

type options struct {
	*program.Options
	config string
}

func main() {
	o := options{Options: program.New(name, workers)}
	command := o.Command("Provision a resource outside of the cluster for every new namespace over HTTP, and deprovision it when the namespace is deleted", o.run)
	command.Flags().StringVar(&o.config, "config", o.config, "File of kind "+provisioner.Kind+" with the requests to send. Required.")
	command.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(command))
}

func (o *options) run(ctx context.Context) error {
	if o.config == "" {
		return errors.New("--config is required: give a file of kind " + provisioner.Kind)
	}
	provisioned, err := provisioner.LoadFile(o.config)
	if err != nil {
		return err
	}
	if _, err := o.Connect(); err != nil {
		return err
	}
	provision := provisioner.New(provisioned, o.Core, timing.SystemClock())
	o.Name, o.Initialize = provisioned.Initializer, provision.Initialize
	if provisioned.Deprovision != nil {
		o.Finalize = provision.Finalize
	}
	if provisioned.Configuration != "" {
		o.Registration = &initializer.Registration{Configuration: provisioned.Configuration}
	}
	return o.Run(ctx)
}
