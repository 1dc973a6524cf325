/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver builds nsinit-apiserver: a generic API server that serves one group from its
// own etcd.
package apiserver

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission"
	"github.com/nsinit/nsinit/pkg/admission/clusteradmission"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/accessiblenamespace"
	"github.com/nsinit/nsinit/pkg/storage"
	"github.com/nsinit/nsinit/pkg/webhook"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
	// EtcdReady returns why etcd is unavailable, or nil. It decides readiness, never liveness.
	EtcdReady func() error
	// Space observes how full the storage is.
	Space *storage.Monitor
	// Identity verifies that the storage is the one in use. Until it is, requests for
	// NamespaceLifecycles are refused.
	Identity *storage.Identity
	// Stop stops the server, because its storage was replaced.
	Stop func(cause error)
	// Configurations reads the configurations for each plan.
	Configurations *admission.Reader
	// Webhooks are the webhooks that kube-apiserver calls, by name.
	Webhooks map[string]webhook.Answer
	// Certificate is the serving certificate.
	Certificate ServingCertificate
	// Registrations are the admission policies and webhooks of the cluster.
	Registrations *clusteradmission.Registrations
	// Accessible knows which namespaces each user sees.
	Accessible *accessiblenamespace.Index
}

// CompletedConfig can be built into a server.
type CompletedConfig struct {
	generic genericapiserver.CompletedConfig
	extra   ExtraConfig
}

// Complete fills in what follows from the configuration.
func (c *Config) Complete() CompletedConfig {
	c.Generic.BuildHandlerChainFunc = func(handler http.Handler, generic *genericapiserver.Config) http.Handler {
		handler = withIdentifiedStorage(withShortPatches(handler, c.Extra.Codecs), &c.Extra)
		handler = genericapiserver.DefaultBuildHandlerChain(handler, generic)
		return withHandover(withKnownProxy(handler, proxyKnown(generic), c.Extra.Codecs), generic.ShutdownInitiatedNotify())
	}
	return CompletedConfig{generic: c.Generic.Complete(), extra: c.Extra}
}

// New builds the server. It serves once it is prepared and run.
func (c CompletedConfig) New() (*genericapiserver.GenericAPIServer, error) {
	generic, err := c.generic.New(installation.APIServer, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	if err := generic.AddReadyzChecks(c.readyChecks()...); err != nil {
		return nil, err
	}
	if err := generic.AddPostStartHook("nsinit-watch-storage", c.watch); err != nil {
		return nil, err
	}
	if err := generic.AddPostStartHook("nsinit-watch-registrations", func(hook genericapiserver.PostStartHookContext) error {
		c.extra.Registrations.Start(hook)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := generic.AddPostStartHook("nsinit-watch-bindings", func(hook genericapiserver.PostStartHookContext) error {
		go c.extra.Accessible.Run(hook)
		return nil
	}); err != nil {
		return nil, err
	}
	storages, err := c.storages()
	if err != nil {
		return nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, c.extra.Scheme, metav1.ParameterCodec, c.extra.Codecs)
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = storages
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, err
	}
	c.extra.Registrations.SetSchemas(group.StaticOpenAPISpec)
	return generic, nil
}

// readyChecks report why NamespaceLifecycles cannot be served, or soon cannot be. Discovery works
// without all but the first, so a readiness probe can exclude the others.
func (c CompletedConfig) readyChecks() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{
		healthz.NamedCheck("configurations", func(r *http.Request) error { return c.extra.Configurations.Ready(r.Context()) }),
	}
	for _, check := range []struct {
		name  string
		ready func() error
	}{
		{"aggregation-layer", proxyKnown(c.generic.Config)},
		{"etcd", c.extra.EtcdReady},
		{"storage-identity", c.extra.Identity.Problem},
		{"storage-space", c.extra.Space.Problem},
		{"serving-certificate", c.extra.Certificate.Expiring},
	} {
		checks = append(checks, healthz.NamedCheck(check.name, func(*http.Request) error { return check.ready() }))
	}
	return checks
}

// watch observes the storage until the last request was answered. The context of the hook ends
// before that.
func (c CompletedConfig) watch(hook genericapiserver.PostStartHookContext) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(hook))
	go func() {
		<-c.generic.DrainedNotify()
		cancel()
	}()
	go func() {
		if err := c.extra.Identity.Run(ctx); err != nil {
			c.extra.Stop(fmt.Errorf("the storage of this process was replaced: %w", err))
		}
	}()
	go c.extra.Space.Run(ctx)
	return nil
}
