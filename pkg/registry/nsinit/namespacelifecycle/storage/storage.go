/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage serves records from etcd: the main resource and its subresources.
package storage

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/authority"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/terminable"
)

// CreateTimeout bounds the creation of a record, from admission to etcd. Together with
// the age that a list of configurations may have, it bounds how long after the deletion
// of a configuration a record may still be created with its initializers.
const CreateTimeout = 10 * time.Second

// Storage holds what serves records.
type Storage struct {
	Lifecycle  *REST
	Status     *terminable.SubresourceREST
	Finalize   *terminable.PostableREST
	Initialize *terminable.SubresourceREST
}

// REST serves the main endpoint of records.
type REST struct {
	*terminable.REST
}

// Create implements rest.Creater, within CreateTimeout.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, CreateTimeout)
	defer cancel()
	return r.REST.Create(ctx, object, validate, options)
}

// New returns the storage of records. The checker answers who may act as which
// initializer or participant.
func New(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, checker *authority.Checker, clock clock.PassiveClock) (*Storage, error) {
	strategy := namespacelifecycle.NewStrategy(scheme, clock)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &nsinit.NamespaceLifecycle{} },
		NewListFunc:               func() runtime.Object { return &nsinit.NamespaceLifecycleList{} },
		PredicateFunc:             namespacelifecycle.Match,
		DefaultQualifiedResource:  nsinit.Resource("namespacelifecycles"),
		SingularQualifiedResource: nsinit.Resource("namespacelifecycle"),

		CreateStrategy:           strategy,
		UpdateStrategy:           strategy,
		DeleteStrategy:           strategy,
		ResetFieldsStrategy:      strategy,
		ReturnDeletedObject:      true,
		ShouldDeleteDuringUpdate: terminable.ShouldDeleteDuringUpdate,

		TableConvertor: newTable(clock),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: namespacelifecycle.GetAttrs}); err != nil {
		return nil, err
	}
	return &Storage{
		Lifecycle: &REST{terminable.NewREST(terminable.Config{
			Store:      store,
			ShortNames: []string{"nsl"},
			Categories: []string{"nsinit"},
			Terminate:  strategy.Terminate,
		})},
		Status: terminable.NewSubresourceREST(store, namespacelifecycle.NewStatusStrategy(strategy), namespacelifecycle.StatusAuthority(checker)),
		Finalize: &terminable.PostableREST{SubresourceREST: terminable.NewSubresourceREST(store,
			namespacelifecycle.NewFinalizeStrategy(strategy), terminable.FinalizeAuthority(checker))},
		Initialize: terminable.NewSubresourceREST(store, namespacelifecycle.NewInitializeStrategy(strategy), namespacelifecycle.InitializeAuthority(checker)),
	}, nil
}
