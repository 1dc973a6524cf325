/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
)

// FinalizeStrategy is the strategy of the finalize subresource, the only way to change
// spec.finalizers after creation.
type FinalizeStrategy struct {
	*Strategy
}

// NewFinalizeStrategy returns the strategy of the finalize subresource.
func NewFinalizeStrategy(strategy *Strategy) *FinalizeStrategy { return &FinalizeStrategy{strategy} }

// GetResetFields names what this endpoint ignores of an update.
func (*FinalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("metadata", "status", "spec.namespaceUID", "spec.plan", "spec.initializers", "spec.skipped")
}

// PrepareForUpdate keeps everything but spec.finalizers.
func (*FinalizeStrategy) PrepareForUpdate(_ context.Context, object, oldObject runtime.Object) {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	keepMetadata(record, old)
	finalizers := record.Spec.Finalizers
	record.Spec = old.Spec
	record.Spec.Finalizers = finalizers
	record.Status = old.Status
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *FinalizeStrategy) ValidateUpdate(ctx context.Context, object, oldObject runtime.Object) field.ErrorList {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	return append(s.Strategy.ValidateUpdate(ctx, object, oldObject), validation.ValidateFinalize(record.Spec.Finalizers, old.Spec.Finalizers)...)
}
