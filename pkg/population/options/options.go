/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package options assembles policy-population: its flags, clients and controllers.
package options

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/population/controller"
	"github.com/nsinit/nsinit/pkg/program"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

const (
	name = "policy-population"
	// pace is how many objects in existing namespaces are checked or applied each second.
	pace = 20
)

type options struct {
	*program.Options
	clusterScoped []string
}

// NewCommand returns the command policy-population. It runs until its context ends.
func NewCommand() *cobra.Command {
	o := options{Options: program.New(name, initializer.DefaultWorkers)}
	command := o.Command("Apply NamespacePopulations to new namespaces before they open, and to existing ones with scope All", o.run)
	flags := command.Flags()
	flags.StringVar(&o.Name, "initializer-name", name+".nsinit.dev", "Name of the initializer in the NamespaceInitializerConfiguration. It is also the field manager of the objects that policy-population applies.")
	flags.StringSliceVar(&o.clusterScoped, "cluster-scoped-resources", o.clusterScoped,
		"Cluster-scoped resources that policy-population may apply, such as clusterrolebindings.rbac.authorization.k8s.io. Each object belongs to one namespace, and is deleted with this namespace.")
	return command
}

func (o *options) run(ctx context.Context) error {
	config, err := o.Connect()
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
	applier := &population.Applier{
		Client: objects, Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(o.Core.Discovery())),
		FieldManager: o.Name, ClusterScoped: map[schema.GroupResource]struct{}{}, Pace: flowcontrol.NewTokenBucketRateLimiter(pace, pace),
		Discovery: o.Core.Discovery(), Reviews: o.Core.AuthorizationV1().SelfSubjectAccessReviews(), Compiler: &population.Compiler{},
	}
	for _, resource := range o.clusterScoped {
		applier.ClusterScoped[schema.ParseGroupResource(resource)] = struct{}{}
	}
	populator := population.NewPopulator(applier, o.Nsinit.NsinitV1alpha1())
	exempt, events := exemptions.New(o.Core, installation.Namespace()), record.NewBroadcaster()
	existing, err := controller.New(controller.Config{
		Core: o.Core, Nsinit: o.Nsinit, Metadata: metadataClient, Mapper: applier.Mapper, Populator: populator, Exemptions: exempt,
		Events: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name}), Clock: timing.SystemClock(),
	})
	if err != nil {
		return err
	}
	o.Initialize, o.GroupOf, populator.Wrote, populator.Populated = populator.Initialize, existing.Creator, existing.Wrote, existing.Populated
	// It acts on open namespaces.
	o.Alongside = func(ctx context.Context, runner *initializer.Runner) error {
		events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Core.CoreV1().Events("")})
		defer events.Shutdown()
		existing.Retry = runner.Retry
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return exempt.Run(ctx) })
		group.Go(func() error { existing.Run(ctx); return nil })
		return group.Wait()
	}
	return o.Run(ctx)
}
