/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// StatusStrategy is the strategy of the status subresource. The phase follows from the
// deletion and is kept.
type StatusStrategy struct {
	*Strategy
}

// NewStatusStrategy returns the strategy of the status subresource.
func NewStatusStrategy(strategy *Strategy) *StatusStrategy { return &StatusStrategy{strategy} }

// GetResetFields names what this endpoint ignores of an update.
func (*StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("metadata", "spec", "initializers", "status.phase")
}

// PrepareForUpdate keeps everything but status.
func (*StatusStrategy) PrepareForUpdate(_ context.Context, object, oldObject runtime.Object) {
	configuration, old := object.(*nsinit.NamespaceInitializerConfiguration), oldObject.(*nsinit.NamespaceInitializerConfiguration)
	keepMetadata(configuration, old)
	configuration.Initializers = old.Initializers
	configuration.Spec = old.Spec
	configuration.Status.Phase = old.Status.Phase
}
