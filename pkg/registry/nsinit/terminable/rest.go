/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package terminable

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// Config is what a kind adds to its store.
type Config struct {
	// Store holds the kind's objects, with the strategies of the main endpoint.
	Store *genericregistry.Store
	// ShortNames and Categories are what kubectl accepts for the resource.
	ShortNames, Categories []string
	// Terminate marks the status of an object whose deletion begins. It runs
	// inside the guaranteed update, after the deletion timestamp was set.
	Terminate func(runtime.Object)
}

// REST serves the main endpoint of a kind that is deleted in two steps. It offers no
// deletion of collections: each deletion has to name what it deletes.
type REST struct {
	config Config
	store  *genericregistry.Store
}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.StorageVersionProvider
	rest.ResetFieldsStrategy
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
	rest.CorruptObjectDeleterProvider
	rest.Patcher
} = (*REST)(nil)

// NewREST returns the storage of the main endpoint. The store must be complete.
func NewREST(config Config) *REST {
	return &REST{config: config, store: config.Store}
}

// New implements rest.Storage.
func (r *REST) New() runtime.Object { return r.store.New() }

// Destroy implements rest.Storage.
func (r *REST) Destroy() { r.store.Destroy() }

// NamespaceScoped implements rest.Scoper.
func (r *REST) NamespaceScoped() bool { return r.store.NamespaceScoped() }

// GetSingularName implements rest.SingularNameProvider.
func (r *REST) GetSingularName() string { return r.store.GetSingularName() }

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.config.ShortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.config.Categories }

// StorageVersion implements rest.StorageVersionProvider.
func (r *REST) StorageVersion() runtime.GroupVersioner { return r.store.StorageVersion() }

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *REST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *REST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}

// NewList implements rest.Lister.
func (r *REST) NewList() runtime.Object { return r.store.NewList() }

// List implements rest.Lister.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.store.List(ctx, options)
}

// Watch implements rest.Watcher.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	return r.store.Watch(ctx, options)
}

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := WithoutVersion(object); err != nil {
		return nil, err
	}
	return r.store.Create(ctx, object, validate, options)
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, allowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, WithReadableVersion(info), validateCreate, validateUpdate, allowCreate, options)
}

// Delete begins the termination of an object when it is called first. Later calls
// return the object as it is while somebody in spec.finalizers has not acted, and
// remove it from storage after that. Every call acts on one incarnation only.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	object, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, false, apierrors.NewInternalError(err)
	}
	options, err = r.withPreconditions(options, accessor)
	if err != nil {
		return nil, false, err
	}
	if accessor.GetDeletionTimestamp().IsZero() {
		terminating, err := r.terminate(ctx, name, validate, options)
		return terminating, false, err
	}
	if finalizers := object.(nsinit.Terminable).SpecFinalizers(); len(finalizers) > 0 {
		return object, false, nil
	}
	return r.store.Delete(ctx, name, validate, options)
}

// GetCorruptObjDeleter implements rest.CorruptObjectDeleterProvider: it deletes an object that cannot
// be decoded, in one step, because neither its finalizers nor its UID can be read.
func (r *REST) GetCorruptObjDeleter() rest.GracefulDeleter { return r.store.GetCorruptObjDeleter() }

// withPreconditions binds a deletion to the incarnation that was read, and refuses one
// that was meant for another.
func (r *REST) withPreconditions(options *metav1.DeleteOptions, accessor metav1.Object) (*metav1.DeleteOptions, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	uid, version := accessor.GetUID(), accessor.GetResourceVersion()
	if want := options.Preconditions.UID; want != nil && *want != uid {
		return nil, r.conflict(accessor.GetName(), fmt.Errorf("precondition failed: the UID in the precondition is %q, the object's is %q", *want, uid))
	}
	if want := options.Preconditions.ResourceVersion; want != nil && *want != version {
		return nil, r.conflict(accessor.GetName(), fmt.Errorf("precondition failed: the resourceVersion in the precondition is %q, the object's is %q", *want, version))
	}
	options.Preconditions.UID = &uid
	return options, nil
}

func (r *REST) conflict(name string, err error) error {
	return apierrors.NewConflict(r.store.DefaultQualifiedResource, name, err)
}

// terminate is the first step of a deletion.
func (r *REST) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, error) {
	preconditions := &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	return r.Modify(ctx, name, preconditions, dryrun.IsDryRun(options.DryRun), func(existing runtime.Object) error {
		if validate != nil {
			if err := validate(ctx, existing.DeepCopyObject()); err != nil {
				return err
			}
		}
		accessor, err := meta.Accessor(existing)
		if err != nil {
			return err
		}
		if !accessor.GetDeletionTimestamp().IsZero() {
			return nil // another request was first
		}
		now := metav1.Now()
		accessor.SetDeletionTimestamp(&now)
		accessor.SetFinalizers(dependentsFinalizers(accessor.GetFinalizers(), options))
		r.config.Terminate(existing)
		return nil
	})
}

// Modify changes a stored object on the server's own account, past strategies and
// admission, in a guaranteed update: the change is made to what is stored at the time, and
// again if that was changed meanwhile. It returns what is stored afterwards.
func (r *REST) Modify(ctx context.Context, name string, preconditions *storage.Preconditions, dryRun bool, change func(runtime.Object) error) (runtime.Object, error) {
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	out := r.store.NewFunc()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions,
		storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) { return existing, change(existing) }), dryRun, nil)
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

// dependentsFinalizers adds and removes the finalizers by which the garbage collector
// learns what the deletion's propagation policy asks of it. The order of all others is
// kept.
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
