/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package rest combines the storages of the nsinit.dev group.
package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespaceinitializerconfiguration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacepopulation"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/populatednamespace"
	"github.com/nsinit/nsinit/pkg/webhook"
)

// StorageProvider provides the storage of the group.
type StorageProvider struct {
	Scheme  *runtime.Scheme
	Codecs  serializer.CodecFactory
	Checker *authorization.Checker
	// Lifecycles configures the storage of NamespaceLifecycles.
	Lifecycles namespacelifecycle.Options
	// EarlyWrites configures the answers to writes into initializing namespaces.
	EarlyWrites webhook.Options
	// ConfigMaps reads the list of exempt namespaces.
	ConfigMaps typedcorev1.ConfigMapsGetter
	// Namespace is that of nsinit.
	Namespace string
}

// NewRESTStorage returns the group with the storage of each resource and subresource.
func (p *StorageProvider) NewRESTStorage(getter apiserverregistry.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, p.Scheme, metav1.ParameterCodec, p.Codecs)
	configurations, err := generic.New(namespaceinitializerconfiguration.NewKind(p.Checker, p.Lifecycles.Clock), p.Scheme, getter)
	if err != nil {
		return group, err
	}
	lifecycles, err := namespacelifecycle.New(p.Scheme, getter, p.Checker, p.Lifecycles)
	if err != nil {
		return group, err
	}
	populations, err := generic.New(namespacepopulation.NewKind(), p.Scheme, getter)
	if err != nil {
		return group, err
	}
	populated, err := generic.New(populatednamespace.NewKind(), p.Scheme, getter)
	if err != nil {
		return group, err
	}
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"namespaceinitializerconfigurations":          configurations.Main,
		"namespaceinitializerconfigurations/status":   configurations.Subresources["status"],
		"namespaceinitializerconfigurations/finalize": &generic.PostableREST{SubresourceREST: configurations.Subresources["finalize"]},
		v1alpha1.ResourceInitializers:                 &initializers{},
		v1alpha1.ResourceAdmissionReviews: webhook.New(map[string]webhook.Answer{
			webhook.EarlyWrites: webhook.NewEarlyWrites(p.EarlyWrites), webhook.Stamp: webhook.NewStamp(p.ConfigMaps, p.Namespace),
		}),
		"namespacelifecycles":            lifecycles.Lifecycle,
		"namespacelifecycles/status":     lifecycles.Status,
		"namespacelifecycles/finalize":   lifecycles.Finalize,
		"namespacelifecycles/initialize": lifecycles.Initialize,
		"namespacepopulations":           &generic.CollectionREST{REST: populations.Main},
		"namespacepopulations/status":    populations.Subresources["status"],
		"populatednamespaces":            &generic.CollectionREST{REST: populated.Main},
		"populatednamespaces/status":     populated.Subresources["status"],
	}
	return group, nil
}
