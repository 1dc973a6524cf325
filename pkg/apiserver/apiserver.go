/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver puts nsinit-apiserver together: a generic API server that serves one
// group from its own etcd.
package apiserver

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission/plan"
	"github.com/nsinit/nsinit/pkg/authorization"
	lifecyclestorage "github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle/storage"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/rest"
	"github.com/nsinit/nsinit/pkg/storageidentity"
	"github.com/nsinit/nsinit/pkg/storagespace"
	"github.com/nsinit/nsinit/pkg/webhook/earlywrite"
)

// Config is everything that a server is built from.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Extra   ExtraConfig
}

// ExtraConfig is what nsinit adds to a generic API server.
type ExtraConfig struct {
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
	Clock  clock.PassiveClock
	// Features are nsinit's own.
	Features featuregate.FeatureGate
	// ReadRepairAfter is how long an initializer with failurePolicy Ignore may have its
	// turn before a GET of the record drops it. Zero: a GET changes nothing.
	ReadRepairAfter time.Duration
	// EtcdReady returns why etcd cannot be used at the moment, or nil. It decides
	// readiness, never liveness.
	EtcdReady func() error
	// StorageDown returns why the storage is known not to answer, or nil. While it does not,
	// records are refused with the reason.
	StorageDown func() error
	// Space observes how full the storage is.
	Space *storagespace.Monitor
	// Identity knows whether the storage is the right one. While it is not, records are
	// refused. Whoever runs the server has to end it when Identity says Exchanged.
	Identity *storageidentity.Identity
	// Configurations knows which configurations are in force.
	Configurations *plan.Poller
	// EarlyWrites counts writes that came too early.
	EarlyWrites *earlywrite.Metrics
	// Core is a client of the core API.
	Core typedcorev1.CoreV1Interface
	// Certificate is the one that is served.
	Certificate ServingCertificate
}

// storage knows whether the storage can be used and trusted.
type storage struct {
	*storageidentity.Identity
	down func() error
}

// Problem returns why the storage cannot be used or must not be trusted, or nil.
func (s storage) Problem() error {
	if err := s.down(); err != nil {
		return err
	}
	return s.Identity.Problem()
}

// CompletedConfig can be built into a server.
type CompletedConfig struct {
	generic    genericapiserver.CompletedConfig
	extra      ExtraConfig
	namespaces corelisters.NamespaceLister
}

// Server is nsinit-apiserver.
type Server struct {
	GenericAPIServer *genericapiserver.GenericAPIServer
}

// Complete fills in what follows from the configuration.
func (c *Config) Complete() CompletedConfig {
	c.Generic.BuildHandlerChainFunc = func(handler http.Handler, generic *genericapiserver.Config) http.Handler {
		handler = withIdentifiedStorage(handler, storage{c.Extra.Identity, c.Extra.StorageDown}, c.Extra.Codecs)
		handler = genericapiserver.DefaultBuildHandlerChain(handler, generic)
		return withHandover(withKnownProxy(handler, proxyKnown(generic), c.Extra.Codecs), generic.ShutdownInitiatedNotify())
	}
	namespaces := c.Generic.SharedInformerFactory.Core().V1().Namespaces().Lister()
	return CompletedConfig{generic: c.Generic.Complete(), extra: c.Extra, namespaces: namespaces}
}

// New builds the server. It serves once its GenericAPIServer is prepared and run.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.generic.New("nsinit-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	if err := generic.AddReadyzChecks(c.readyChecks()...); err != nil {
		return nil, err
	}
	if err := generic.AddPostStartHook("nsinit-watch-storage", c.watch); err != nil {
		return nil, err
	}
	provider := rest.StorageProvider{
		Scheme:   c.extra.Scheme,
		Codecs:   c.extra.Codecs,
		Checker:  authorization.New(c.generic.Authorization.Authorizer),
		Features: c.extra.Features,
		Records: lifecyclestorage.Options{
			Clock:           c.extra.Clock,
			ReadRepairAfter: c.extra.ReadRepairAfter,
			Identified:      c.extra.Identity.Verify,
			Confirmed:       c.extra.Identity.Confirm,
		},
		EarlyWrites: earlywrite.Options{Namespaces: c.namespaces, Clock: c.extra.Clock, Metrics: c.extra.EarlyWrites},
		ConfigMaps:  c.extra.Core,
	}
	group, err := provider.NewRESTStorage(c.generic.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, err
	}
	return &Server{GenericAPIServer: generic}, nil
}

// readyChecks tell why records cannot be served, or soon cannot be. All but the first leave
// discovery alone, so whoever decides where requests are sent may exclude them.
func (c CompletedConfig) readyChecks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, check := range []struct {
		name  string
		ready func() error
	}{
		{"aggregation-layer", proxyKnown(c.generic.Config)},
		{"etcd", c.extra.EtcdReady},
		{"storage-identity", c.extra.Identity.Problem},
		{"storage-space", c.extra.Space.Problem},
		{"configurations", c.extra.Configurations.Ready},
		{"serving-certificate", c.extra.Certificate.Expiring},
	} {
		checks = append(checks, healthz.NamedCheck(check.name, func(*http.Request) error { return check.ready() }))
	}
	return checks
}

// watch keeps an eye on the storage until the last request has been answered, which is later
// than the end of the hook's context.
func (c CompletedConfig) watch(hook genericapiserver.PostStartHookContext) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(hook))
	go func() {
		<-c.generic.DrainedNotify()
		cancel()
	}()
	go c.extra.Identity.Run(ctx)
	go c.extra.Configurations.Run(ctx)
	go c.extra.Space.Run(ctx)
	return nil
}
