/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned/scheme"
	"github.com/nsinit/nsinit/pkg/generated/informers/externalversions"
	"github.com/nsinit/nsinit/pkg/initializer"
	"github.com/nsinit/nsinit/pkg/initializer/program"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/population/driftcontroller"
	"github.com/nsinit/nsinit/pkg/population/populator"
	"github.com/nsinit/nsinit/pkg/population/rollout"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// pace is how many objects in existing namespaces are checked or applied each second.
const pace = 20

// controllers act on open namespaces.
type controllers struct {
	clients    *program.Clients
	populate   *populator.Populator
	drift      *driftcontroller.Controller
	rollout    *rollout.Controller
	exemptions *exemptions.List
	informers  externalversions.SharedInformerFactory
	namespaces *population.Namespaces
	events     record.EventBroadcaster
}

func newControllers(clients *program.Clients, metadataClient metadata.Interface, applier *population.Applier) (*controllers, error) {
	namespaces, err := population.NewNamespaces(metadataClient)
	if err != nil {
		return nil, err
	}
	applier.Pace = flowcontrol.NewTokenBucketRateLimiter(pace, pace)
	applier.Compiler = &population.Compiler{}
	reporter := *applier
	reporter.DryRun = true
	followed := driftcontroller.NewFollowed(applier.Mapper)
	c := &controllers{
		clients: clients, populate: populator.New(applier, clients.Nsinit.NsinitV1alpha1(), followed.Add),
		informers: driftcontroller.NewInformers(clients.Nsinit), namespaces: namespaces,
		exemptions: exemptions.New(clients.Core, installation.Namespace()), events: record.NewBroadcaster(),
	}
	informers := c.informers.Nsinit().V1alpha1()
	if c.drift, err = driftcontroller.New(driftcontroller.Config{
		Core: clients.Core, Nsinit: clients.Nsinit, Metadata: metadataClient, Informers: informers, Followed: followed, Namespaces: namespaces,
		Populate: c.populate.Populate, Forget: c.populate.Forget, Readiness: applier.Readiness,
	}); err != nil {
		return nil, err
	}
	c.rollout, err = rollout.New(rollout.Config{
		Core: clients.Core, Nsinit: clients.Nsinit, Informers: informers, Namespaces: namespaces, Exemptions: c.exemptions, Compile: applier.Compiler.Compile,
		Report: func(ctx context.Context, namespace *corev1.Namespace, of *population.Population, inventory []v1alpha1.PopulatedObject) ([]population.Result, error) {
			return c.populate.Report(ctx, &reporter, namespace, of, inventory)
		},
		RollOut: c.populate.RollOut, Clock: timing.SystemClock(),
		Events: c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name}),
	})
	return c, err
}

// run runs the controllers while this replica acts.
func (c *controllers) run(ctx context.Context, runner *initializer.Runner) error {
	c.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.clients.Core.CoreV1().Events("")})
	defer c.events.Shutdown()
	c.drift.Retry = runner.Retry
	group, ctx := errgroup.WithContext(ctx)
	c.informers.StartWithContext(ctx)
	defer c.informers.Shutdown()
	group.Go(func() error { return c.exemptions.Run(ctx) })
	for _, run := range []func(context.Context){c.namespaces.Run, c.rollout.Run, c.drift.Run} {
		group.Go(func() error { run(ctx); return nil })
	}
	return group.Wait()
}
