/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package apiserver puts nsinit-apiserver together: a generic API server that serves one
// group from its own etcd.
package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/registry/nsinit/authority"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/rest"
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
	// EtcdReady returns why etcd cannot be used at the moment, or nil. It decides
	// readiness, never liveness.
	EtcdReady func() error
}

// CompletedConfig can be built into a server.
type CompletedConfig struct {
	generic genericapiserver.CompletedConfig
	extra   ExtraConfig
}

// Server is nsinit-apiserver.
type Server struct {
	GenericAPIServer *genericapiserver.GenericAPIServer
}

// Complete fills in what follows from the configuration.
func (c *Config) Complete() CompletedConfig {
	return CompletedConfig{generic: c.Generic.Complete(), extra: c.Extra}
}

// New builds the server. It serves once its GenericAPIServer is prepared and run.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.generic.New("nsinit-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	if err := generic.AddReadyzChecks(healthz.NamedCheck("etcd", func(*http.Request) error { return c.extra.EtcdReady() })); err != nil {
		return nil, err
	}
	provider := rest.StorageProvider{
		Scheme:  c.extra.Scheme,
		Codecs:  c.extra.Codecs,
		Checker: authority.New(c.generic.Authorization.Authorizer),
		Clock:   c.extra.Clock,
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
