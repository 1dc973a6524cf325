/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage serves configurations from etcd: the main resource and its
// subresources.
package storage

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespaceinitializerconfiguration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/table"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/terminable"
)

// Storage holds what serves configurations.
type Storage struct {
	Configuration *terminable.REST
	Status        *terminable.SubresourceREST
	Finalize      *terminable.PostableREST
}

// New returns the storage of configurations. The checker answers who may finalize, the
// gate which features are on.
func New(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, checker *authorization.Checker, gate featuregate.FeatureGate, clock clock.PassiveClock) (*Storage, error) {
	strategy := namespaceinitializerconfiguration.NewStrategy(scheme, gate)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} },
		NewListFunc:               func() runtime.Object { return &nsinit.NamespaceInitializerConfigurationList{} },
		PredicateFunc:             namespaceinitializerconfiguration.Match,
		DefaultQualifiedResource:  nsinit.Resource("namespaceinitializerconfigurations"),
		SingularQualifiedResource: nsinit.Resource("namespaceinitializerconfiguration"),

		CreateStrategy:           strategy,
		UpdateStrategy:           strategy,
		DeleteStrategy:           strategy,
		ResetFieldsStrategy:      strategy,
		ReturnDeletedObject:      true,
		ShouldDeleteDuringUpdate: terminable.ShouldDeleteDuringUpdate,

		TableConvertor: newTable(clock),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: namespaceinitializerconfiguration.GetAttrs}); err != nil {
		return nil, err
	}
	return &Storage{
		Configuration: terminable.NewREST(terminable.Config{
			Store:      store,
			ShortNames: []string{"nsic"},
			Categories: []string{"nsinit"},
			Terminate:  namespaceinitializerconfiguration.Terminate,
		}),
		Status: terminable.NewSubresourceREST(store, namespaceinitializerconfiguration.NewStatusStrategy(strategy), anyone),
		Finalize: &terminable.PostableREST{SubresourceREST: terminable.NewSubresourceREST(store,
			namespaceinitializerconfiguration.NewFinalizeStrategy(strategy), terminable.AuthorizeFinalize(checker))},
	}, nil
}

// anyone adds nothing to what RBAC says of the endpoint.
func anyone(context.Context, runtime.Object, runtime.Object) error { return nil }

func newTable(clock clock.PassiveClock) *table.Convertor[*nsinit.NamespaceInitializerConfiguration] {
	return &table.Convertor[*nsinit.NamespaceInitializerConfiguration]{
		Clock: clock,
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the configuration, by which configurations are ordered."},
			{Name: "Phase", Type: "string", Description: "Active or Terminating."},
			{Name: "Initializers", Type: "string", Description: "The initializers, in the order in which they act."},
			{Name: "Pending", Type: "integer", Description: "Number of namespaces that wait for an initializer of this configuration."},
			{Name: "Age", Type: "string", Description: "How long ago the configuration was created."},
			{Name: "Finalizers", Type: "string", Priority: 1, Description: "Who must have acted before the configuration leaves."},
		},
		Cells: func(configuration *nsinit.NamespaceInitializerConfiguration, now time.Time) []any {
			var initializers, finalizers []string
			for _, initializer := range configuration.Initializers {
				initializers = append(initializers, initializer.Name)
			}
			for _, finalizer := range configuration.Spec.Finalizers {
				finalizers = append(finalizers, string(finalizer))
			}
			return []any{configuration.Name, string(configuration.Status.Phase), joined(initializers),
				int64(configuration.Status.PendingNamespaces), table.Since(configuration.CreationTimestamp.Time, now), joined(finalizers)}
		},
	}
}

func joined(names []string) string {
	if len(names) == 0 {
		return "<none>"
	}
	return strings.Join(names, ",")
}
