/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package program holds what nsinit's commands share, and the flags and clients of its initializers.
package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/leader"
)

// Options are the options of an initializer, with the flags of every initializer.
type Options struct {
	initializer.Options

	name       string
	kubeconfig string
	elect      bool
	lease      string
	health     string
	logs       *logs.Options
}

// New returns the defaults of a program.
func New(name string, workers int) *Options {
	return &Options{Options: initializer.Options{Workers: workers}, name: name, lease: installation.Namespace() + "/" + name, logs: logs.NewOptions()}
}

// Command returns a command that runs until its context ends.
func (o *Options) Command(short string, run func(context.Context) error) *cobra.Command {
	command := NewCommand(o.name, short, o.logs, run)
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Kubeconfig of the cluster. Without this flag, the program uses the service account of its pod.")
	flags.IntVar(&o.Workers, "workers", o.Workers, "Maximum number of namespaces that the program processes at the same time.")
	flags.BoolVar(&o.elect, "leader-elect", o.elect, "Elect a leader among the replicas with a Lease. Only the leader acts.")
	flags.StringVar(&o.lease, "leader-elect-lease", o.lease, "NAMESPACE/NAME of the Lease for the leader election.")
	flags.StringVar(&o.health, "health-bind-address", o.health, "Address, such as :8081, on which the program serves /livez, /readyz and /metrics over HTTP. By default, the program does not serve these paths.")
	return command
}

// Connect sets the clients, and returns their configuration. It has no client-side rate limit: the servers apply priority and fairness.
func (o *Options) Connect() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot load the configuration of the cluster: %w", err)
	}
	config = rest.AddUserAgent(config, o.name)
	config.QPS = -1
	config.DisableCompression = true // of every event of a watch
	var coreErr, nsinitErr error
	o.Core, coreErr = kubernetes.NewForConfig(config)
	o.Nsinit, nsinitErr = versioned.NewForConfig(config)
	return config, errors.Join(coreErr, nsinitErr)
}

// Run runs the initializer, and serves probes and metrics if --health-bind-address is set.
func (o *Options) Run(ctx context.Context) error {
	if o.elect {
		namespace, name, err := installation.ParseNamespacedName(o.lease)
		if err != nil {
			return fmt.Errorf("--leader-elect-lease: %w", err)
		}
		o.Election = new(leader.NewElection(namespace, name))
	}
	runner, err := initializer.New(o.Options)
	if err != nil {
		return err
	}
	if o.health != "" {
		if err := runner.Serve(ctx, o.health); err != nil {
			return fmt.Errorf("--health-bind-address: %w", err)
		}
	}
	return runner.Run(ctx)
}
