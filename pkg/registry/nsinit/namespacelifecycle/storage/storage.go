/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage serves records from etcd: the main resource and its subresources.
package storage

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// Storage holds what serves records.
type Storage struct {
	Lifecycle  *REST
	Status     *generic.SubresourceREST
	Finalize   *generic.PostableREST
	Initialize *generic.SubresourceREST
}

// Options are what an installation decides about records.
type Options struct {
	// Clock is the time.
	Clock clock.PassiveClock
	// ReadRepairAfter is how long an initializer with failurePolicy Ignore may have its
	// turn before a GET of the record drops it. Zero: a GET changes nothing.
	ReadRepairAfter time.Duration
	// Identified returns why the storage must not be trusted, or nil. It is asked
	// before a record is said not to exist, and before a list is returned.
	Identified func(context.Context) error
	// Confirmed does the same, and asks the core API, too. It is asked before a record is
	// created.
	Confirmed func(context.Context) error
}

// REST serves the main endpoint of records.
type REST struct {
	*generic.REST
	options Options
}

// Get implements rest.Getter. It does two things more than to read. A record whose first
// initializer should have been dropped long ago is repaired, as in the design of dynamic
// admission configuration: whoever had to drop it is not there. And that a record does not
// exist, on which namespaces may disappear, is said only if the storage is the right one.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := r.REST.Get(ctx, name, options)
	if apierrors.IsNotFound(err) {
		if unidentified := r.options.Identified(ctx); unidentified != nil {
			return nil, utilapierrors.NewUnavailable(unidentified)
		}
	}
	if err != nil {
		return nil, err
	}
	record, ok := object.(*nsinit.NamespaceLifecycle)
	if !ok || !namespacelifecycle.RepairDue(record, r.options.Clock.Now(), r.options.ReadRepairAfter) {
		return object, nil
	}
	repaired, err := r.Modify(ctx, name, &storage.Preconditions{UID: &record.UID}, false, func(existing runtime.Object) error {
		namespacelifecycle.Repair(existing.(*nsinit.NamespaceLifecycle), r.options.Clock.Now(), r.options.ReadRepairAfter)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot drop an initializer whose deadline is long past; the next read tries again", "namespace", name)
		return object, nil
	}
	return repaired, nil
}

// List implements rest.Lister. A list from a storage that was just lost is not returned: it lacks
// what was lost.
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

// Create implements rest.Creater, within timing.CreateTimeout. No record is created in a storage other than
// the one that is in use.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.CreateTimeout)
	defer cancel()
	if unidentified := r.options.Confirmed(ctx); unidentified != nil {
		return nil, utilapierrors.NewUnavailable(unidentified)
	}
	return r.REST.Create(ctx, object, validate, options)
}

// New returns the storage of records. The checker answers who may act as which
// initializer or participant.
func New(scheme *runtime.Scheme, getter apiserverregistry.RESTOptionsGetter, checker *authorization.Checker, options Options) (*Storage, error) {
	kind := namespacelifecycle.NewKind(checker, options.Clock)
	kind.Table = newTable(options.Clock)
	storage, err := generic.New(kind, scheme, getter)
	if err != nil {
		return nil, err
	}
	return &Storage{
		Lifecycle:  &REST{storage.Main, options},
		Status:     storage.Subresources["status"],
		Finalize:   &generic.PostableREST{SubresourceREST: storage.Subresources["finalize"]},
		Initialize: storage.Subresources["initialize"],
	}, nil
}
