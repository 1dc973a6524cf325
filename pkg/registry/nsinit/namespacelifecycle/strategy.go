/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/terminable"
)

// Strategy is the strategy of the main endpoint. Of an existing record it lets the
// caller change metadata alone.
type Strategy struct {
	terminable.Strategy
	clock clock.PassiveClock
}

var _ interface {
	rest.RESTCreateStrategy
	rest.RESTDeleteStrategy
	terminable.UpdateStrategy
	rest.DeclarativeValidationStrategy
} = (*Strategy)(nil)

// NewStrategy returns the strategy of the main endpoint. The scheme holds the generated
// validation.
func NewStrategy(scheme *runtime.Scheme, clock clock.PassiveClock) *Strategy {
	return &Strategy{terminable.NewStrategy(scheme), clock}
}

// GetResetFields names what this endpoint ignores of an update.
func (*Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("status", "spec.plan", "spec.initializers", "spec.finalizers", "spec.skipped")
}

// PrepareForCreate adds nsinit's own finalizer and derives the status. Admission has
// filled spec.plan and spec.initializers before, so they are kept.
func (s *Strategy) PrepareForCreate(ctx context.Context, object runtime.Object) {
	record := object.(*nsinit.NamespaceLifecycle)
	terminable.InjectFinalizer(record)
	record.Spec.Skipped = nil
	normalize(record)
	begin(record, s.clock.Now(), actor(ctx))
}

// Validate implements rest.RESTCreateStrategy.
func (*Strategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceLifecycle(object.(*nsinit.NamespaceLifecycle))
}

// PrepareForUpdate keeps everything that has an endpoint of its own.
func (*Strategy) PrepareForUpdate(_ context.Context, object, oldObject runtime.Object) {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	record.Spec.Plan = old.Spec.Plan
	record.Spec.Initializers = old.Spec.Initializers
	record.Spec.Finalizers = old.Spec.Finalizers
	record.Spec.Skipped = old.Spec.Skipped
	record.Status = old.Status
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (*Strategy) ValidateUpdate(_ context.Context, object, old runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceLifecycleUpdate(object.(*nsinit.NamespaceLifecycle), old.(*nsinit.NamespaceLifecycle))
}

// Terminate marks the status of a record whose deletion begins: nobody has a turn any
// more.
func (s *Strategy) Terminate(object runtime.Object) {
	settle(object.(*nsinit.NamespaceLifecycle), s.clock.Now(), "")
}

// GetAttrs returns the labels and the selectable fields of a record.
func GetAttrs(object runtime.Object) (labels.Set, fields.Set, error) {
	record, ok := object.(*nsinit.NamespaceLifecycle)
	if !ok {
		return nil, nil, fmt.Errorf("expected a NamespaceLifecycle, got %T", object)
	}
	set := generic.ObjectMetaFieldsSet(&record.ObjectMeta, false)
	set["status.phase"] = string(record.Status.Phase)
	set["status.currentInitializer"] = record.Status.CurrentInitializer
	return labels.Set(record.Labels), set, nil
}

// Match returns the predicate of a list or a watch.
func Match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: GetAttrs}
}

// actor returns the name of the user that a request comes from.
func actor(ctx context.Context) string {
	if user, ok := genericapirequest.UserFrom(ctx); ok {
		return user.GetName()
	}
	return ""
}

// resetFields names the fields that an endpoint resets, in every served version.
func resetFields(paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	return terminable.ResetFields(v1alpha1.SchemeGroupVersion, paths...)
}

// keepMetadata lets an update of a subresource change nothing of the metadata. The UID,
// the resourceVersion and managedFields stay as they were sent, so that preconditions
// still bite.
func keepMetadata(record, old *nsinit.NamespaceLifecycle) {
	metav1.ResetObjectMetaForStatus(&record.ObjectMeta, &old.ObjectMeta)
}
