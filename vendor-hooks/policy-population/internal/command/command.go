/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package command holds the flags of policy-population, and puts it together.
package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/initializer"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/util/leader"
	"github.com/nsinit/nsinit/pkg/util/namespacedname"
	"github.com/nsinit/nsinit/vendor-hooks/policy-population/internal/keeper"
	"github.com/nsinit/nsinit/vendor-hooks/policy-population/internal/populator"
)

const name = "policy-population"

type options struct {
	kubeconfig    string
	name          string
	clusterScoped []string
	workers       int
	elect         bool
	lease         string
	health        string
	logs          *logs.Options
}

// New returns the command, which runs until its context ends.
func New() *cobra.Command {
	o := options{
		name:    name + ".nsinit.dev",
		workers: initializer.DefaultWorkers,
		lease:   installation.Namespace + "/" + name,
		logs:    logs.NewOptions(),
	}
	command := &cobra.Command{
		Use:           name,
		Short:         "Put what NamespacePopulations hold into every new namespace, before its tenants can act",
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
	flags.StringVar(&o.name, "initializer-name", o.name, "Name under which the initializer is registered in a NamespaceInitializerConfiguration, and field manager of what it applies.")
	flags.StringSliceVar(&o.clusterScoped, "cluster-scoped-resources", o.clusterScoped,
		"Resources outside of namespaces that NamespacePopulations may hold, such as clusterrolebindings.rbac.authorization.k8s.io. Each object belongs to one namespace, and leaves with it.")
	flags.IntVar(&o.workers, "workers", o.workers, "Number of namespaces that are populated at the same time.")
	flags.BoolVar(&o.elect, "leader-elect", o.elect, "Let one of several replicas act, which they agree on by a Lease.")
	flags.StringVar(&o.lease, "leader-elect-lease", o.lease, "NAMESPACE/NAME of the Lease.")
	flags.StringVar(&o.health, "health-bind-address", o.health, "Address such as :8081 on which /healthz, /readyz and /metrics are served over HTTP. Empty: not at all.")
	return command
}

func (o *options) run(ctx context.Context) error {
	allowed := map[schema.GroupResource]struct{}{}
	for _, resource := range o.clusterScoped {
		allowed[schema.ParseGroupResource(resource)] = struct{}{}
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
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery()))
	var keep *keeper.Keeper
	var runner *initializer.Runner
	populate := populator.New(&population.Applier{Client: objects, Mapper: mapper, FieldManager: o.name, ClusterScoped: allowed},
		nsinit.NsinitV1alpha1(), func(kind schema.GroupVersionKind) { keep.Follow(kind) })
	keep, err = keeper.New(keeper.Config{Core: core, Nsinit: nsinit, Metadata: metadataClient, Mapper: mapper, Populate: populate.Populate, Forget: populate.Forget,
		Changed: func() { runner.Retry() }})
	if err != nil {
		return err
	}
	options := initializer.Options{Name: o.name, Initialize: populate.Initialize, Core: core, Nsinit: nsinit, Workers: o.workers, Alongside: keep.Run}
	if options.Election, err = o.election(); err != nil {
		return err
	}
	runner, err = initializer.New(options)
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

// election returns how replicas agree on which of them acts, or nil.
func (o *options) election() (*leader.Election, error) {
	if !o.elect {
		return nil, nil //nolint:nilnil // no election is none
	}
	namespace, name, err := namespacedname.Parse(o.lease)
	if err != nil {
		return nil, fmt.Errorf("--leader-elect-lease: %w", err)
	}
	return new(leader.NewElection(namespace, name)), nil
}
