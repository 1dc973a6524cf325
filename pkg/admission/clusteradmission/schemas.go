/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"encoding/json"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// schemas gives the plugin MutatingAdmissionPolicy the schemas of the resources. By default, the plugin would ask kube-apiserver
// for schemas every five seconds, and read those of nsinit through the aggregation layer from this server.
type schemas struct {
	definitions map[string]*spec.Schema
}

var _ interface {
	openapi.Client
	openapi.GroupVersion
} = (*schemas)(nil)

// Paths implements openapi.Client.
func (s *schemas) Paths() (map[string]openapi.GroupVersion, error) {
	return map[string]openapi.GroupVersion{"apis/" + v1alpha1.SchemeGroupVersion.String(): s}, nil
}

// Schema implements openapi.GroupVersion.
func (s *schemas) Schema(string) ([]byte, error) {
	return json.Marshal(spec3.OpenAPI{Version: "3.0.0", Components: &spec3.Components{Schemas: s.definitions}})
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
