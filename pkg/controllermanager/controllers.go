/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/controller/certificates"
	"github.com/nsinit/nsinit/pkg/controller/configuration"
	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/controller/lifecycle"
	"github.com/nsinit/nsinit/pkg/controller/namereuse"
	"github.com/nsinit/nsinit/pkg/controller/termination"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	nsinitinformers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions"
	"github.com/nsinit/nsinit/pkg/util/namespacedname"
	"github.com/nsinit/nsinit/pkg/util/systemclock"
)

// resync is how often every object is looked at although nothing happened to it. It mends
// what an error in the controllers may have left, and costs no request.
const resync = 10 * time.Minute

// runControllers runs every controller until the context ends, and waits for them.
func (o *Options) runControllers(ctx context.Context, core kubernetes.Interface, nsinit versioned.Interface, metadata metadata.Interface, apis aggregator.Interface) error {
	events := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(lifecycle.EventLimits()))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.CoreV1().Events("")})

	namespace, configMap, err := namespacedname.Parse(o.Exemptions)
	if err != nil {
		return err
	}
	exempt := exemptions.New(core, namespace, configMap)
	metrics := lifecycle.NewMetrics()
	if err := metrics.Register(legacyregistry.Register); err != nil {
		return err
	}

	coreFactory := informers.NewSharedInformerFactory(core, resync)
	nsinitFactory := nsinitinformers.NewSharedInformerFactory(nsinit, resync)
	records := nsinitFactory.Nsinit().V1alpha1().NamespaceLifecycles()
	if err := legacyregistry.CustomRegister(lifecycle.NewCollector(records.Lister(), systemclock.New())); err != nil {
		return err
	}
	lifecycles, err := lifecycle.New(lifecycle.Dependencies{
		Core:       core,
		Nsinit:     nsinit,
		Namespaces: coreFactory.Core().V1().Namespaces(),
		Records:    records,
		Exemptions: exempt,
		Events:     events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name}),
		Metrics:    metrics,
		Clock:      systemclock.New(),

		StalledAfter: o.StalledAfter,
	})
	if err != nil {
		return err
	}
	configurations, err := configuration.New(configuration.Dependencies{
		Nsinit:         nsinit,
		Configurations: nsinitFactory.Nsinit().V1alpha1().NamespaceInitializerConfigurations(),
		Records:        records,
		Clock:          systemclock.New(),
	})
	if err != nil {
		return err
	}

	names, err := namereuse.New(namereuse.Dependencies{Core: core, Namespaces: coreFactory.Core().V1().Namespaces(), Clock: systemclock.New()})
	if err != nil {
		return err
	}

	terminations, err := o.terminations(core, metadata, coreFactory)
	if err != nil {
		return err
	}

	keep, err := o.certificates(core, apis)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	coreFactory.StartWithContext(ctx)
	nsinitFactory.StartWithContext(ctx)
	var group sync.WaitGroup
	errs := make([]error, 6)
	group.Go(func() { defer cancel(); errs[2] = exempt.Run(ctx) })
	group.Go(func() { defer cancel(); errs[0] = lifecycles.Run(ctx, o.Workers) })
	group.Go(func() { defer cancel(); errs[1] = configurations.Run(ctx) })
	group.Go(func() { defer cancel(); errs[5] = names.Run(ctx) })
	if terminations != nil {
		group.Go(func() { defer cancel(); errs[3] = terminations.Run(ctx, o.Workers) })
	}
	if keep != nil {
		group.Go(func() { defer cancel(); errs[4] = keep.Run(ctx) })
	}
	group.Wait()
	coreFactory.Shutdown()
	nsinitFactory.Shutdown()
	return errors.Join(errs...)
}

// certificates returns the controller that keeps the certificates, or nil where it is off.
func (o *Options) certificates(core kubernetes.Interface, apis aggregator.Interface) (*certificates.Controller, error) {
	if !o.Certificates.Enabled {
		return nil, nil //nolint:nilnil // there is none
	}
	metrics := certificates.NewMetrics()
	if err := metrics.Register(legacyregistry.Register); err != nil {
		return nil, err
	}
	return certificates.New(certificates.Dependencies{Core: core, APIs: apis, Metrics: metrics, Clock: systemclock.New()}, o.Certificates.Options), nil
}

// terminations returns the controller that empties namespaces, or nil where it is off.
func (o *Options) terminations(core kubernetes.Interface, metadata metadata.Interface, factory informers.SharedInformerFactory) (*termination.Controller, error) {
	if !o.NamespaceTermination {
		return nil, nil //nolint:nilnil // there is none
	}
	return termination.New(termination.Dependencies{
		Core:       core,
		Metadata:   metadata,
		Namespaces: factory.Core().V1().Namespaces(),
		Discover:   core.Discovery().ServerPreferredNamespacedResources,
		Clock:      systemclock.New(),
	})
}
