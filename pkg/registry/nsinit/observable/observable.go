/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package observable serves kinds that have a spec and a status, and nothing more: the main
// endpoint writes the one, the subresource status the other. They leave storage when they are
// deleted.
package observable

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/terminable"
)

// Object is an object that has metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind says what a kind is made of.
type Kind[T any] struct {
	// Resource and Singular are its names.
	Resource, Singular string
	ShortNames         []string
	// New and NewList return empty objects of the internal version.
	New, NewList func() runtime.Object
	// KeepSpec and KeepStatus copy one part of an object.
	KeepSpec, KeepStatus func(to, from T)
	// SameSpec compares what counts for the generation.
	SameSpec func(a, b T) bool
	// Validate checks an object; old is nil for a new one. What every object has is checked
	// already, except for the metadata.
	Validate func(object, old T) field.ErrorList
	// Table prints it.
	Table rest.TableConvertor
}

// Storage holds what serves a kind.
type Storage struct {
	Main   *REST
	Status *terminable.SubresourceREST
}

// REST serves the main endpoint.
type REST struct {
	*genericregistry.Store
	shortNames []string
}

var _ interface {
	rest.StandardStorage
	rest.ShortNamesProvider
	rest.CategoriesProvider
} = (*REST)(nil)

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.shortNames }

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := terminable.WithoutVersion(object); err != nil {
		return nil, err
	}
	return r.Store.Create(ctx, object, validate, options)
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, allowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(ctx, name, terminable.WithReadableVersion(info), validateCreate, validateUpdate, allowCreate, options)
}

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return []string{"nsinit"} }

// New returns the storage of a kind. The scheme holds the generated validation.
func New[T Object](kind Kind[T], scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := &strategy[T]{terminable.NewStrategy(scheme), kind}
	store := &genericregistry.Store{
		NewFunc:                   kind.New,
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  nsinit.Resource(kind.Resource),
		SingularQualifiedResource: nsinit.Resource(kind.Singular),

		CreateStrategy:      main,
		UpdateStrategy:      main,
		DeleteStrategy:      main,
		ResetFieldsStrategy: main,

		TableConvertor: kind.Table,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		return nil, err
	}
	return &Storage{
		Main:   &REST{store, kind.ShortNames},
		Status: terminable.NewSubresourceREST(store, &statusStrategy[T]{main}, func(context.Context, runtime.Object, runtime.Object) error { return nil }),
	}, nil
}

// strategy is that of the main endpoint.
type strategy[T Object] struct {
	terminable.Strategy
	kind Kind[T]
}

// GetResetFields names what this endpoint ignores of an update.
func (*strategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return terminable.ResetFields(v1alpha1.SchemeGroupVersion, "status")
}

// PrepareForCreate takes no status from whoever creates the object.
func (s *strategy[T]) PrepareForCreate(_ context.Context, object runtime.Object) {
	s.kind.KeepStatus(object.(T), s.kind.New().(T))
	object.(T).SetGeneration(1)
}

// Validate implements rest.RESTCreateStrategy.
func (s *strategy[T]) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	var none T
	return s.kind.Validate(object.(T), none)
}

// PrepareForUpdate keeps the status, and counts the changes of the rest.
func (s *strategy[T]) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	s.kind.KeepStatus(object.(T), old.(T))
	generation := old.(T).GetGeneration()
	if !s.kind.SameSpec(object.(T), old.(T)) {
		generation++
	}
	object.(T).SetGeneration(generation)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *strategy[T]) ValidateUpdate(_ context.Context, object, old runtime.Object) field.ErrorList {
	return s.kind.Validate(object.(T), old.(T))
}

// statusStrategy is that of the subresource.
type statusStrategy[T Object] struct{ *strategy[T] }

// GetResetFields names what this endpoint ignores of an update.
func (*statusStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return terminable.ResetFields(v1alpha1.SchemeGroupVersion, "metadata", "spec")
}

// PrepareForUpdate keeps everything but the status.
func (s *statusStrategy[T]) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	s.kind.KeepSpec(object.(T), old.(T))
	metav1.ResetObjectMetaForStatus(object.(T), old.(T))
}
