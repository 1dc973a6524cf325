/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package command holds the flags of policy-population, and puts it together.
package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/initializer"
	"github.com/nsinit/nsinit/vendor-hooks/policy-population/internal/population"
)

const name = "policy-population"

type options struct {
	kubeconfig string
	manifests  string
	name       string
	workers    int
	health     string
	logs       *logs.Options
}

// New returns the command, which runs until its context ends.
func New() *cobra.Command {
	o := options{
		name:    name + ".nsinit.dev",
		workers: initializer.DefaultWorkers,
		logs:    logs.NewOptions(),
	}
	command := &cobra.Command{
		Use:           name,
		Short:         "Apply a file of manifests to every new namespace, before its tenants can act",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(o.logs, nil); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	flags := command.Flags()
	logsapi.AddFlags(o.logs, flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Kubeconfig of the cluster. Without it, the service account of the pod is used.")
	flags.StringVar(&o.manifests, "manifests", o.manifests, "File of YAML documents to apply to each new namespace. Required.")
	flags.StringVar(&o.name, "initializer-name", o.name, "Name under which the initializer is registered in a NamespaceInitializerConfiguration.")
	flags.IntVar(&o.workers, "workers", o.workers, "Number of namespaces that are populated at the same time.")
	flags.StringVar(&o.health, "health-bind-address", o.health, "Address such as :8081 on which /healthz, /readyz and /metrics are served over HTTP. Empty: not at all.")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.manifests == "" {
		return errors.New("--manifests is missing: name a file of YAML documents")
	}
	manifests, err := population.LoadFile(o.manifests)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot load the configuration of the cluster: %w", err)
	}
	config = rest.AddUserAgent(config, name)
	config.QPS = -1 // the servers share their capacity by priority and fairness
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nsinit, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	populator := &population.Populator{
		Manifests:    manifests,
		Client:       client,
		Mapper:       restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery())),
		FieldManager: o.name,
	}
	runner, err := initializer.New(initializer.Options{
		Name:       o.name,
		Initialize: populator.Initialize,
		Core:       core,
		Nsinit:     nsinit,
		Workers:    o.workers,
	})
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
