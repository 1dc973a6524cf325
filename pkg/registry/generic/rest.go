/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// New returns what serves the resource of a kind and its subresources, by their names in the API. The scheme holds the
// generated validation.
func New[T Object](kind *Kind[T], scheme *runtime.Scheme, getter apiserverregistry.RESTOptionsGetter) (map[string]rest.Storage, error) {
	strategy := NewStrategy(kind, "", scheme)
	store := &genericregistry.Store{
		NewFunc:                   kind.New,
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  nsinit.Resource(kind.Resource),
		SingularQualifiedResource: nsinit.Resource(kind.Singular),

		CreateStrategy: strategy,
		UpdateStrategy: strategy,
		DeleteStrategy: strategy,

		TableConvertor: kind.Table,
	}
	if kind.MayCreate != nil { // the store also calls it when an update or server-side apply creates an object
		store.BeginCreate = func(ctx context.Context, _ runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			return func(context.Context, bool) {}, kind.MayCreate(ctx)
		}
	}
	main := &REST{served: store, ResetFieldsFilterStrategy: strategy, store: store, shortNames: kind.ShortNames}
	if kind.Terminate != nil {
		store.ReturnDeletedObject = true
		store.ShouldDeleteDuringUpdate = shouldDeleteDuringUpdate
		main.terminated = func(object runtime.Object) { kind.Terminate(object.(T)) }
	}
	if err := store.CompleteWithOptions(&apiserverregistry.StoreOptions{RESTOptions: getter, AttrFunc: kind.attributes}); err != nil {
		return nil, err
	}
	storages := map[string]rest.Storage{kind.Resource: main}
	if kind.Terminate == nil {
		storages[kind.Resource] = &CollectionREST{main}
	}
	for name, endpoint := range kind.Endpoints {
		if name == "" {
			continue
		}
		subresource := newSubresourceREST(store, NewStrategy(kind, name, scheme))
		storages[kind.Resource+"/"+name] = subresource
		if endpoint.Postable {
			storages[kind.Resource+"/"+name] = &PostableREST{subresource}
		}
	}
	return storages, nil
}

// attributes returns the labels and the selectable fields of an object.
func (k *Kind[T]) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	typed, set := object.(T), fields.Set{}
	if k.Fields != nil {
		set = k.Fields(typed)
	}
	set["metadata.name"] = typed.GetName()
	return typed.GetLabels(), set, nil
}

// served is what a REST serves as the store does.
type served interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.StorageVersionProvider
	rest.Getter
	rest.Lister
	rest.Watcher
	// The deleter of corrupt objects takes one step, because neither the finalizers nor the UID of
	// an object that cannot be decoded can be read.
	rest.CorruptObjectDeleterProvider
}

// REST serves the main endpoint of a kind. It does not delete collections: each deletion has to
// name what it deletes.
type REST struct {
	served
	rest.ResetFieldsFilterStrategy
	store      *genericregistry.Store
	shortNames []string
	// terminated sets the status of an object whose deletion begins. It is nil if a deletion takes
	// one step.
	terminated func(runtime.Object)
}

var _ interface {
	served
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.ResetFieldsFilterStrategy
	rest.CreaterUpdater
	rest.GracefulDeleter
	rest.Patcher
} = (*REST)(nil)

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories implements rest.CategoriesProvider.
func (*REST) Categories() []string { return []string{"nsinit"} }

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := withoutVersion(object); err != nil {
		return nil, err
	}
	return r.store.Create(ctx, object, validate, options)
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, allowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, withReadableVersion(info), validateCreate, validateUpdate, allowCreate, options)
}

// Delete removes an object from storage in one or two steps. If it takes two, the first call begins
// the termination. Later calls return the object as it is while spec.finalizers has entries, and
// remove it after that. Each call acts on one incarnation only.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if r.terminated == nil {
		return r.store.Delete(ctx, name, validate, options)
	}
	object, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	stored := object.(metav1.Object)
	options = options.DeepCopy()
	if _, _, err := rest.BeforeDelete(r.store.DeleteStrategy, ctx, object, options); err != nil {
		return nil, false, err
	}
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.UID = new(stored.GetUID())
	if stored.GetDeletionTimestamp().IsZero() {
		terminating, err := r.terminate(ctx, name, validate, options)
		return terminating, false, err
	}
	if finalizers := *object.(nsinit.Terminable).SpecFinalizers(); len(finalizers) > 0 {
		return object, false, nil
	}
	return r.store.Delete(ctx, name, validate, options)
}

// terminate is the first step of a deletion.
func (r *REST) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	preconditions := &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	out := r.store.NewFunc()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions, storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		if validate != nil {
			if err := validate(ctx, existing.DeepCopyObject()); err != nil {
				return nil, err
			}
		}
		accessor := existing.(metav1.Object)
		if !accessor.GetDeletionTimestamp().IsZero() {
			return existing, nil // another request has begun the deletion
		}
		now := metav1.Now()
		accessor.SetDeletionTimestamp(&now)
		accessor.SetFinalizers(dependentsFinalizers(accessor.GetFinalizers(), options))
		r.terminated(existing)
		return existing, nil
	}), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		resource := r.store.DefaultQualifiedResource
		err = storageerr.InterpretUpdateError(storageerr.InterpretGetError(err, resource, name), resource, name)
		if _, ok := err.(apierrors.APIStatus); !ok {
			err = apierrors.NewInternalError(err)
		}
		return nil, err
	}
	return out, nil
}

// dependentsFinalizers adds and removes the finalizers that pass the propagation policy of the
// deletion to the garbage collector. It keeps the order of all others.
func dependentsFinalizers(finalizers []string, options *metav1.DeleteOptions) []string {
	want := map[string]bool{}
	switch {
	case options.OrphanDependents != nil: //nolint:staticcheck // clients may still send the deprecated field
		want[metav1.FinalizerOrphanDependents] = *options.OrphanDependents //nolint:staticcheck // as above
		want[metav1.FinalizerDeleteDependents] = false
	case options.PropagationPolicy != nil:
		want[metav1.FinalizerOrphanDependents] = *options.PropagationPolicy == metav1.DeletePropagationOrphan
		want[metav1.FinalizerDeleteDependents] = *options.PropagationPolicy == metav1.DeletePropagationForeground
	default:
		return finalizers
	}
	var result []string
	for _, finalizer := range finalizers {
		if wanted, decided := want[finalizer]; !decided || wanted {
			result = append(result, finalizer)
		}
		delete(want, finalizer)
	}
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		if want[finalizer] {
			result = append(result, finalizer)
		}
	}
	return result
}

// CollectionREST adds the deletion of collections to the main endpoint of a kind that is deleted in
// one step.
type CollectionREST struct {
	*REST
}

var _ interface {
	rest.StandardStorage
	rest.StorageWithReadiness
} = (*CollectionREST)(nil)

// DeleteCollection implements rest.CollectionDeleter.
func (r *CollectionREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.store.DeleteCollection(ctx, validate, options, list)
}

// ReadinessCheck implements rest.StorageWithReadiness.
func (r *CollectionREST) ReadinessCheck() error { return r.store.ReadinessCheck() }
