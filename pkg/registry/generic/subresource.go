/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/nsinit/nsinit/pkg/authorization"
)

// SubresourceREST serves GET, PUT and PATCH of the parts that a subresource owns. It never creates
// an object. Authorization runs inside the guaranteed update, on the object as it is stored
// and as it would be, for every verb.
type SubresourceREST struct {
	rest.ResetFieldsFilterStrategy
	store *genericregistry.Store
	// refuse and authorize are methods of the strategy.
	refuse    func(sent, old runtime.Object) error
	authorize func(ctx context.Context, updated, old runtime.Object) (annotations map[string]string, err error)
}

var _ interface {
	rest.Storage
	rest.Patcher
	rest.ResetFieldsFilterStrategy
	rest.TableConvertor
} = (*SubresourceREST)(nil)

// newSubresourceREST returns the storage of a subresource of the objects in store.
func newSubresourceREST[T Object](store *genericregistry.Store, strategy *Strategy[T]) *SubresourceREST {
	own := *store
	own.UpdateStrategy = strategy
	return &SubresourceREST{strategy, &own, strategy.refuse, strategy.authorize}
}

// New implements rest.Storage.
func (r *SubresourceREST) New() runtime.Object { return r.store.New() }

// Destroy implements rest.Storage. The store belongs to the main endpoint, which
// destroys it.
func (r *SubresourceREST) Destroy() {}

// Get implements rest.Getter, which a PATCH needs.
func (r *SubresourceREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater.
func (r *SubresourceREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	var annotations map[string]string // of the last try
	authorized := func(ctx context.Context, updated, old runtime.Object) (err error) {
		if annotations, err = r.authorize(ctx, updated, old); err != nil {
			return authorization.Refusal(r.store.DefaultQualifiedResource, name, err)
		}
		if validateUpdate == nil {
			return nil
		}
		return validateUpdate(ctx, updated, old)
	}
	info = rest.WrapUpdatedObjectInfo(withReadableVersion(info), func(_ context.Context, sent, old runtime.Object) (runtime.Object, error) {
		return sent, r.refuse(sent, old)
	})
	object, created, err := r.store.Update(ctx, name, info, validateCreate, authorized, false, options)
	if err == nil && !dryrun.IsDryRun(options.DryRun) {
		for key, value := range annotations {
			audit.AddAuditAnnotation(ctx, key, value)
		}
	}
	return object, created, err
}

// ConvertToTable implements rest.TableConvertor.
func (r *SubresourceREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}

// PostableREST adds POST to a subresource: the FINALIZE operation of the namespaces
// design. A POST is the same update as a PUT, with the same checks.
type PostableREST struct {
	*SubresourceREST
}

var _ interface {
	rest.NamedCreater
	rest.SubresourceObjectMetaPreserver
} = (*PostableREST)(nil)

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID and the
// resourceVersion of the body, so that they act as preconditions.
func (r *PostableREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater. The body must be the object that the URL names.
func (r *PostableREST) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if sent := object.(metav1.Object).GetName(); sent != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%q) does not match the name on the URL (%q)", sent, name))
	}
	var validateUpdate rest.ValidateObjectUpdateFunc
	if validate != nil {
		validateUpdate = func(ctx context.Context, updated, _ runtime.Object) error { return validate(ctx, updated) }
	}
	info := rest.DefaultUpdatedObjectInfo(object, keepManagedFields)
	updated, _, err := r.Update(ctx, name, info, nil, validateUpdate, false, &metav1.UpdateOptions{
		DryRun:          options.DryRun,
		FieldManager:    options.FieldManager,
		FieldValidation: options.FieldValidation,
	})
	return updated, err
}

// keepManagedFields restores managedFields. The handler of a creation makes the sender the manager of
// every field.
func keepManagedFields(_ context.Context, updated, old runtime.Object) (runtime.Object, error) {
	updated.(metav1.Object).SetManagedFields(old.(metav1.Object).GetManagedFields())
	return updated, nil
}
