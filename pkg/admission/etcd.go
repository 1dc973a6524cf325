/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storageerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// NewList returns a List that reads etcd, with the prefix, codec and encryption that the registry uses
// for configurations, and a function that closes its connections.
//
// An empty resourceVersion makes the range linearizable. The range has no limit, so its result is of
// one revision.
func NewList(getter apiserverregistry.RESTOptionsGetter) (List, func(), error) {
	return newList(getter, "namespaceinitializerconfigurations",
		func() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} },
		func() *nsinit.NamespaceInitializerConfigurationList {
			return &nsinit.NamespaceInitializerConfigurationList{}
		},
		func(stored *nsinit.NamespaceInitializerConfigurationList) []v1alpha1.NamespaceInitializerConfiguration {
			items := make([]v1alpha1.NamespaceInitializerConfiguration, 0, len(stored.Items))
			for i := range stored.Items {
				items = append(items, *versioned(&stored.Items[i]))
			}
			return items
		})
}

// NewObjectsList does the same for the configurations of pods and Jobs.
func NewObjectsList(getter apiserverregistry.RESTOptionsGetter) (func(ctx context.Context) ([]nsinit.InitializerConfiguration, error), func(), error) {
	return newList(getter, "initializerconfigurations",
		func() runtime.Object { return &nsinit.InitializerConfiguration{} },
		func() *nsinit.InitializerConfigurationList { return &nsinit.InitializerConfigurationList{} },
		func(stored *nsinit.InitializerConfigurationList) []nsinit.InitializerConfiguration {
			return stored.Items
		})
}

func newList[L runtime.Object, T any](getter apiserverregistry.RESTOptionsGetter, name string, newObject func() runtime.Object, newStored func() L,
	items func(stored L) []T) (func(ctx context.Context) ([]T, error), func(), error) {
	resource := nsinit.Resource(name)
	options, err := getter.GetRESTOptions(resource, newObject())
	if err != nil {
		return nil, nil, err
	}
	prefix := "/" + strings.TrimPrefix(options.ResourcePrefix, "/")
	etcd, destroy, err := factory.Create(*options.StorageConfig, newObject, func() runtime.Object { return newStored() }, prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a client of the storage: %w", err)
	}
	list := func(ctx context.Context) ([]T, error) {
		stored := newStored()
		if err := etcd.GetList(ctx, prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, stored); err != nil {
			return nil, storageerr.InterpretListError(err, resource)
		}
		return items(stored), nil
	}
	return list, destroy, nil
}

// versioned returns a configuration as clients see it. Its lists are those of the original.
func versioned(configuration *nsinit.NamespaceInitializerConfiguration) *v1alpha1.NamespaceInitializerConfiguration {
	return &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: configuration.ObjectMeta, Initializers: configuration.Initializers, Spec: configuration.Spec, Status: configuration.Status}
}
