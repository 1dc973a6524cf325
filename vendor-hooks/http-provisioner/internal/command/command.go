/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package command builds the command http-provisioner.
package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nsinit/nsinit/pkg/initializer"
	"github.com/nsinit/nsinit/pkg/initializer/program"
	"github.com/nsinit/nsinit/pkg/util/systemclock"
	"github.com/nsinit/nsinit/vendor-hooks/http-provisioner/internal/config"
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

// New returns the command, which runs until its context ends.
func New() *cobra.Command {
	o := options{Options: program.New(name, workers)}
	command := o.Command("Provision a resource outside of the cluster for every new namespace over HTTP, and deprovision it when the namespace is deleted", o.run)
	command.Flags().StringVar(&o.config, "config", o.config, "File of kind "+config.Kind+" with the requests to send. Required.")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.config == "" {
		return errors.New("--config is required: give a file of kind " + config.Kind)
	}
	provisioned, err := config.LoadFile(o.config)
	if err != nil {
		return err
	}
	clients, err := o.Clients()
	if err != nil {
		return err
	}
	provision := provisioner.New(provisioned, clients.Core, systemclock.New())
	options := initializer.Options{Name: provisioned.Initializer, Initialize: provision.Initialize}
	if provisioned.Deprovision != nil {
		options.Finalize = provision.Finalize
	}
	if provisioned.Configuration != "" {
		options.Registration = &initializer.Registration{Configuration: provisioned.Configuration}
	}
	runner, err := o.Runner(options, clients)
	if err != nil {
		return err
	}
	return o.Run(ctx, runner)
}
