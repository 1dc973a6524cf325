/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/features"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/terminable"
)

// Strategy is the strategy of the main endpoint.
type Strategy struct {
	terminable.Strategy
	// allowFail lets an initializer begin with failurePolicy Fail.
	allowFail bool
}

var _ interface {
	rest.RESTCreateStrategy
	rest.RESTDeleteStrategy
	terminable.UpdateStrategy
	rest.DeclarativeValidationStrategy
} = (*Strategy)(nil)

// NewStrategy returns the strategy of the main endpoint. The scheme holds the generated
// validation. The gate of nsinit's features decides what a new initializer may have.
func NewStrategy(scheme *runtime.Scheme, gate featuregate.FeatureGate) *Strategy {
	return &Strategy{terminable.NewStrategy(scheme), gate.Enabled(features.FailPolicyOnCreate)}
}

// GetResetFields names what this endpoint ignores of an update.
func (*Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("status", "spec.finalizers")
}

// PrepareForCreate adds nsinit's own finalizer.
func (*Strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	configuration := object.(*nsinit.NamespaceInitializerConfiguration)
	terminable.InjectFinalizer(configuration)
	configuration.Generation = 1
	configuration.Status = nsinit.NamespaceInitializerConfigurationStatus{Phase: nsinit.ConfigurationActive}
}

// Validate implements rest.RESTCreateStrategy.
func (s *Strategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	configuration := object.(*nsinit.NamespaceInitializerConfiguration)
	errs := validation.ValidateNamespaceInitializerConfiguration(configuration)
	if !s.allowFail {
		errs = append(errs, validation.ValidateFailOpen(configuration, nil)...)
	}
	return errs
}

// PrepareForUpdate keeps what has an endpoint of its own, and counts the changes of the
// initializers.
func (*Strategy) PrepareForUpdate(_ context.Context, object, oldObject runtime.Object) {
	configuration, old := object.(*nsinit.NamespaceInitializerConfiguration), oldObject.(*nsinit.NamespaceInitializerConfiguration)
	configuration.Spec.Finalizers = old.Spec.Finalizers
	configuration.Status = old.Status
	configuration.Generation = old.Generation
	if !equality.Semantic.DeepEqual(configuration.Initializers, old.Initializers) {
		configuration.Generation++
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *Strategy) ValidateUpdate(_ context.Context, object, oldObject runtime.Object) field.ErrorList {
	configuration, old := object.(*nsinit.NamespaceInitializerConfiguration), oldObject.(*nsinit.NamespaceInitializerConfiguration)
	errs := validation.ValidateNamespaceInitializerConfigurationUpdate(configuration, old)
	if !s.allowFail {
		errs = append(errs, validation.ValidateFailOpen(configuration, old)...)
	}
	return errs
}

// Terminate marks the status of a configuration whose deletion begins.
func Terminate(object runtime.Object) {
	object.(*nsinit.NamespaceInitializerConfiguration).Status.Phase = nsinit.ConfigurationTerminating
}

// GetAttrs returns the labels and the selectable fields of a configuration.
func GetAttrs(object runtime.Object) (labels.Set, fields.Set, error) {
	configuration, ok := object.(*nsinit.NamespaceInitializerConfiguration)
	if !ok {
		return nil, nil, fmt.Errorf("expected a NamespaceInitializerConfiguration, got %T", object)
	}
	set := generic.ObjectMetaFieldsSet(&configuration.ObjectMeta, false)
	set["status.phase"] = string(configuration.Status.Phase)
	return labels.Set(configuration.Labels), set, nil
}

// Match returns the predicate of a list or a watch.
func Match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: GetAttrs}
}

// resetFields names the fields that an endpoint resets, in every served version.
func resetFields(paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	return terminable.ResetFields(v1alpha1.SchemeGroupVersion, paths...)
}

// keepMetadata lets an update of a subresource change nothing of the metadata but what
// carries preconditions.
func keepMetadata(configuration, old *nsinit.NamespaceInitializerConfiguration) {
	metav1.ResetObjectMetaForStatus(&configuration.ObjectMeta, &old.ObjectMeta)
}
