/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

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
	return resetFields("metadata", "initializers", "status")
}

// PrepareForUpdate keeps everything but spec.finalizers.
func (*FinalizeStrategy) PrepareForUpdate(_ context.Context, object, oldObject runtime.Object) {
	configuration, old := object.(*nsinit.NamespaceInitializerConfiguration), oldObject.(*nsinit.NamespaceInitializerConfiguration)
	keepMetadata(configuration, old)
	configuration.Initializers = old.Initializers
	configuration.Status = old.Status
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *FinalizeStrategy) ValidateUpdate(ctx context.Context, object, oldObject runtime.Object) field.ErrorList {
	configuration, old := object.(*nsinit.NamespaceInitializerConfiguration), oldObject.(*nsinit.NamespaceInitializerConfiguration)
	return append(s.Strategy.ValidateUpdate(ctx, object, oldObject), validation.ValidateFinalize(configuration.Spec.Finalizers, old.Spec.Finalizers)...)
}
