/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// validateInitializerName reports every problem of a name at its field. The generated validation
// reports an absent name.
func validateInitializerName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range helper.ValidateInitializerName(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

// validateMeta validates the metadata of an object that is not in a namespace. For a new one, old is nil.
func validateMeta[T interface {
	comparable
	metav1.Object
}](updated, old T, name apivalidation.ValidateNameFunc) (errs field.ErrorList) {
	var none T
	if old != none {
		errs = apivalidation.ValidateObjectMetaAccessorUpdate(updated, old, field.NewPath("metadata"))
	}
	return append(errs, apivalidation.ValidateObjectMetaAccessor(updated, false, name, field.NewPath("metadata"))...)
}

// validateUID refuses to move an object to another namespace. The generated validation of
// immutable fields does not report the value.
func validateUID(updated, old types.UID) field.ErrorList {
	return apivalidation.ValidateImmutableField(updated, old, field.NewPath("spec", "namespaceUID"))
}

// validateFinalizers checks spec.finalizers: names of participants, each once.
func validateFinalizers(finalizers []v1alpha1.FinalizerName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[v1alpha1.FinalizerName]()
	for i, name := range finalizers {
		at := path.Index(i)
		switch {
		case name == "":
			errs = append(errs, field.Required(at, "name the participant that must act before the object can be removed"))
		case seen.Has(name):
			errs = append(errs, field.Duplicate(at, name))
		case name != v1alpha1.FinalizerKubernetes:
			errs = append(errs, validateInitializerName(string(name), at)...)
		}
		seen.Insert(name)
	}
	return errs
}

// validateDeadline refuses timeoutSeconds without a failurePolicy.
func validateDeadline(initializer *v1alpha1.RegisteredInitializer, path *field.Path) field.ErrorList {
	if initializer.FailurePolicy == nil && initializer.TimeoutSeconds != nil {
		return field.ErrorList{field.Invalid(path.Child("timeoutSeconds"), *initializer.TimeoutSeconds,
			fmt.Sprintf("takes effect only with a failurePolicy: set failurePolicy to %s or %s, or leave timeoutSeconds out to wait indefinitely",
				v1alpha1.Ignore, v1alpha1.Fail))}
	}
	return nil
}
