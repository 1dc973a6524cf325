/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/controller/certificates"
	"github.com/nsinit/nsinit/pkg/controller/configuration"
	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/controller/lifecycle"
	"github.com/nsinit/nsinit/pkg/controller/objects"
	"github.com/nsinit/nsinit/pkg/controller/termination"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// resync is the time between two reconciliations of an object without an event. It needs no request.
const resync = 10 * time.Minute

// controllers returns the constructors of the controllers of the leader. A constructor returns nil if its
// controller is disabled. To add a controller, add its constructor here.
func (s *shared) controllers() []func() (runnable, error) {
	return []func() (runnable, error){s.lifecycles, s.configurations, s.terminations, s.certificates, s.gate, s.objects}
}

// runnable runs until its context ends.
type runnable func(context.Context) error

// shared holds the dependencies of the controllers.
type shared struct {
	*Options
	clients
	coreInformers   informers.SharedInformerFactory
	nsinitInformers nsinitinformers.SharedInformerFactory
	exemptions      *exemptions.List
	events          record.EventRecorder
	// trusted returns the CAs of the certificates, if the process issues them.
	trusted func(context.Context) ([]byte, error)
}

// clients are the clients of the cluster.
type clients struct {
	core     kubernetes.Interface
	nsinit   versioned.Interface
	metadata metadata.Interface
	apis     aggregator.Interface
}

// runControllers runs every controller until the context ends or one of them fails. It returns when all have
// stopped.
func (o *Options) runControllers(ctx context.Context, clients clients) error {
	events := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(lifecycle.EventLimits()))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.core.CoreV1().Events("")})

	s := &shared{
		Options:         o,
		clients:         clients,
		coreInformers:   informers.NewSharedInformerFactoryWithOptions(clients.core, resync, informers.WithTransform(cached.ControlledNamespaces)),
		nsinitInformers: nsinitinformers.NewSharedInformerFactoryWithOptions(clients.nsinit, resync, nsinitinformers.WithTransform(cached.WithoutManagedFields)),
		exemptions:      exemptions.New(clients.core, installation.Namespace()),
		events:          events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name}),
	}
	// Namespaces are in no namespace, so an index of them by namespace is not needed.
	s.coreInformers.InformerFor(&corev1.Namespace{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewNamespaceInformer(client, resync, cache.Indexers{})
	})
	runnables := []runnable{s.exemptions.Run}
	for _, controller := range s.controllers() {
		run, err := controller()
		if err != nil {
			return err
		}
		if run != nil {
			runnables = append(runnables, run)
		}
	}

	group, ctx := errgroup.WithContext(ctx)
	s.coreInformers.StartWithContext(ctx)
	s.nsinitInformers.StartWithContext(ctx)
	for _, run := range runnables {
		group.Go(func() error { return run(ctx) })
	}
	err := group.Wait()
	s.coreInformers.Shutdown()
	s.nsinitInformers.Shutdown()
	return err
}

// lifecycles drives each namespace through its lifecycle.
func (s *shared) lifecycles() (runnable, error) {
	metrics := lifecycle.NewMetrics()
	if err := metrics.Register(legacyregistry.Register); err != nil {
		return nil, err
	}
	required, err := lifecycle.ParseRequiredObjects(s.RequiredObjects)
	if err != nil {
		return nil, err
	}
	controller, err := lifecycle.New(lifecycle.Dependencies{
		Core:       s.core,
		Nsinit:     s.nsinit,
		Namespaces: s.coreInformers.Core().V1().Namespaces(),
		Informers:  s.nsinitInformers,
		Exemptions: s.exemptions,
		Events:     s.events,
		Metrics:    metrics,
		Clock:      timing.SystemClock(),
		Metadata:   s.metadata,
		Mapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.core.Discovery())),

		Required: required, RequiredTimeout: s.RequiredTimeout, StalledAfter: s.StalledAfter,
	})
	if err != nil {
		return nil, err
	}
	if err := legacyregistry.CustomRegister(lifecycle.NewCollector(s.coreInformers.Core().V1().Namespaces().Lister(), controller.Lifecycles.Lister(), timing.SystemClock())); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return controller.Run(ctx, s.Workers) }, nil
}

// configurations updates the status of configurations, and releases deleted ones.
func (s *shared) configurations() (runnable, error) {
	configurations := s.nsinitInformers.Nsinit().V1alpha1().NamespaceInitializerConfigurations()
	if err := legacyregistry.CustomRegister(configuration.NewCollector(configurations.Lister())); err != nil {
		return nil, err
	}
	controller, err := configuration.New(configuration.Dependencies{
		Nsinit:         s.nsinit,
		Configurations: configurations,
		Lifecycles:     s.nsinitInformers.Nsinit().V1alpha1().NamespaceLifecycles(),
		Clock:          timing.SystemClock(),
	})
	if err != nil {
		return nil, err
	}
	return controller.Run, nil
}

// terminations deletes the content of terminating namespaces.
func (s *shared) terminations() (runnable, error) {
	if !s.NamespaceTermination {
		return nil, nil
	}
	controller, err := termination.New(termination.Dependencies{
		Core:       s.core,
		Metadata:   s.metadata,
		Namespaces: s.coreInformers.Core().V1().Namespaces(),
		Discover:   s.core.Discovery().ServerPreferredNamespacedResources,
		Clock:      timing.SystemClock(),
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return controller.Run(ctx, s.Workers) }, nil
}

// certificates issues and renews the certificates of nsinit-apiserver.
func (s *shared) certificates() (runnable, error) {
	if !s.Certificates.Enabled {
		return nil, nil
	}
	controller, err := certificates.New(certificates.Dependencies{Core: s.core, APIs: s.apis, Clock: timing.SystemClock(), Register: legacyregistry.Register}, s.Certificates.Options)
	if err != nil {
		return nil, err
	}
	s.trusted = controller.Trusted
	return controller.Run, nil
}

// gate closes new namespaces once nsinit works.
func (s *shared) gate() (runnable, error) {
	controller, err := gate.New(gate.Dependencies{Core: s.core, Nsinit: s.nsinit, APIs: s.apis, Trusted: s.trusted, Events: s.events, Clock: timing.SystemClock(), Namespace: installation.Namespace()})
	if err != nil {
		return nil, err
	}
	return controller.Run, nil
}

// objects holds pods and Jobs while the component objects is installed.
func (s *shared) objects() (runnable, error) {
	return objects.New(objects.Dependencies{Core: s.core, Nsinit: s.nsinit, Metadata: s.metadata, Exemptions: s.exemptions, Events: s.events,
		Clock: timing.SystemClock(), Namespace: installation.Namespace()}).Run, nil
}
