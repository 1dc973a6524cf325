/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"encoding/json"
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas gives the plugin MutatingAdmissionPolicy the schemas of the resources. By default, the plugin would read the
// schemas of all resources of the cluster from kube-apiserver every five seconds, and those of nsinit through the
// aggregation layer from this server.
type schemas struct {
	paths       map[string]openapi.GroupVersion
	definitions atomic.Pointer[map[string]*spec.Schema]
}

var _ interface {
	openapi.Client
	openapi.GroupVersion
} = (*schemas)(nil)

func newSchemas(resources []schema.GroupVersionResource) *schemas {
	s := &schemas{paths: map[string]openapi.GroupVersion{}}
	for _, resource := range resources {
		s.paths["apis/"+resource.GroupVersion().String()] = s
	}
	return s
}

func (s *schemas) set(definitions map[string]*spec.Schema) { s.definitions.Store(&definitions) }

// Paths implements openapi.Client.
func (s *schemas) Paths() (map[string]openapi.GroupVersion, error) { return s.paths, nil }

// Schema implements openapi.GroupVersion.
func (s *schemas) Schema(string) ([]byte, error) {
	definitions := s.definitions.Load()
	if definitions == nil {
		return nil, errors.New("the server is starting")
	}
	return json.Marshal(spec3.OpenAPI{Version: "3.0.0", Components: &spec3.Components{Schemas: *definitions}})
}

// ServerRelativeURL implements openapi.GroupVersion. It never changes, as the schemas do not.
func (*schemas) ServerRelativeURL() string { return "/openapi/v3" }

// localSchemas is a client of the core API that has these schemas only.
type localSchemas struct {
	kubernetes.Interface
	schemas *schemas
}

// Discovery implements kubernetes.Interface.
func (l localSchemas) Discovery() discovery.DiscoveryInterfaces {
	return localDiscovery{l.Interface.Discovery(), l.schemas}
}

type localDiscovery struct {
	discovery.DiscoveryInterfaces
	schemas *schemas
}

// OpenAPIV3 implements discovery.OpenAPIV3SchemaInterface.
func (l localDiscovery) OpenAPIV3() openapi.Client { return l.schemas }
