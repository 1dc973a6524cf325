/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// Options configure the storage of NamespaceLifecycles.
type Options struct {
	// Clock gives the times in the status.
	Clock clock.PassiveClock
	// Identified returns why the storage must not be trusted, or nil. It is called before a list
	// or "not found" is returned.
	Identified func(context.Context) error
	// Confirmed does the same, and also reads the core API. It is called before a
	// NamespaceLifecycle is created, so that nothing is created in a storage other than the one in use.
	Confirmed func(context.Context) error
}

// REST serves the main endpoint of NamespaceLifecycles.
type REST struct {
	*generic.REST
	options Options
}

// Get implements rest.Getter. It returns "not found" only if the storage is the one in use, because namespaces are removed on that answer.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := r.REST.Get(ctx, name, options)
	if apierrors.IsNotFound(err) {
		if unidentified := r.options.Identified(ctx); unidentified != nil {
			return nil, utilapierrors.NewUnavailable(unidentified)
		}
	}
	return object, err
}

// List implements rest.Lister. It returns no list from a storage that was lost.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := r.REST.List(ctx, options)
	if err != nil {
		return nil, err
	}
	if unidentified := r.options.Identified(ctx); unidentified != nil {
		return nil, utilapierrors.NewUnavailable(unidentified)
	}
	return list, nil
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	created, err := r.REST.Create(ctx, object, validate, options)
	return created, inTime(ctx, err)
}

// Update implements rest.Updater. Server-side apply, which allows it, creates objects.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, allowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if !allowCreate {
		return r.REST.Update(ctx, name, info, validateCreate, validateUpdate, false, options)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	updated, created, err := r.REST.Update(ctx, name, info, validateCreate, validateUpdate, true, options)
	return updated, created, inTime(ctx, err)
}

// bounded returns the context of a request that may create a NamespaceLifecycle. It ends timing.CreateTimeout after the request
// was received, so that no lifecycle is stored with a plan that is older.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	received, ok := genericapirequest.ReceivedTimestampFrom(ctx)
	if !ok {
		received = time.Now()
	}
	return context.WithDeadline(ctx, received.Add(timing.CreateTimeout))
}

// inTime returns the error of a request, or 504 if the storage did not answer before the context ended. The lifecycle may be stored then.
func inTime(ctx context.Context, err error) error {
	var status apierrors.APIStatus
	if err == nil || ctx.Err() == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("the NamespaceLifecycle was not stored within %s, because nsinit-apiserver or its etcd is overloaded: try again", timing.CreateTimeout), 1)
}

// New returns what serves NamespaceLifecycles and their subresources, by their names in the API. The checker authorizes
// initializers and participants.
func New(scheme *runtime.Scheme, getter apiserverregistry.RESTOptionsGetter, checker *authorization.Checker, options Options) (map[string]rest.Storage, error) {
	kind := NewKind(checker, options.Clock)
	kind.Table = newTable()
	kind.MayCreate = func(ctx context.Context) error {
		if unidentified := options.Confirmed(ctx); unidentified != nil {
			return utilapierrors.NewUnavailable(unidentified)
		}
		return nil
	}
	storages, err := generic.New(kind, scheme, getter)
	if err != nil {
		return nil, err
	}
	storages[kind.Resource] = &REST{storages[kind.Resource].(*generic.REST), options}
	return storages, nil
}
