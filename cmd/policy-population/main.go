/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command policy-population is an initializer that creates the objects of NamespacePopulations in every
// new namespace, such as RBAC, quota and network policies.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json

	"github.com/nsinit/nsinit/pkg/initializer"
	"github.com/nsinit/nsinit/pkg/initializer/program"
	"github.com/nsinit/nsinit/pkg/population"
)

const name = "policy-population"

type options struct {
	*program.Options
	initializer   string
	clusterScoped []string
}

func main() {
	c := newCommand()
	c.SetContext(genericapiserver.SetupSignalContext())
	os.Exit(cli.Run(c))
}

// newCommand returns the command, which runs until its context ends.
func newCommand() *cobra.Command {
	o := options{Options: program.New(name, initializer.DefaultWorkers), initializer: name + ".nsinit.dev"}
	command := o.Command("Apply NamespacePopulations to new namespaces before they open, and to existing ones with scope All", o.run)
	flags := command.Flags()
	flags.StringVar(&o.initializer, "initializer-name", o.initializer, "Name of the initializer in a NamespaceInitializerConfiguration, and field manager of the objects that it applies.")
	flags.StringSliceVar(&o.clusterScoped, "cluster-scoped-resources", o.clusterScoped,
		"Cluster-scoped resources that NamespacePopulations may have, such as clusterrolebindings.rbac.authorization.k8s.io. Each object belongs to one namespace, and is deleted with it.")
	return command
}

func (o *options) run(ctx context.Context) error {
	clients, err := o.Clients()
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(clients.Config)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(clients.Config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Core.Discovery()))
	applier := &population.Applier{
		Client: objects, Mapper: mapper, FieldManager: o.initializer, ClusterScoped: map[schema.GroupResource]struct{}{},
		Reviews: clients.Core.AuthorizationV1().SelfSubjectAccessReviews(),
	}
	for _, resource := range o.clusterScoped {
		applier.ClusterScoped[schema.ParseGroupResource(resource)] = struct{}{}
	}

	controllers, err := newControllers(clients, metadataClient, applier)
	if err != nil {
		return err
	}
	runner, err := o.Runner(initializer.Options{
		Name: o.initializer, Initialize: controllers.populate.Initialize, GroupOf: controllers.namespaces.Creator, Alongside: controllers.run,
	}, clients)
	if err != nil {
		return err
	}
	return o.Run(ctx, runner)
}
