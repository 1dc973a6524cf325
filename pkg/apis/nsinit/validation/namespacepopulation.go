/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// ValidateNamespacePopulation checks a population, without its expressions; old is nil for a
// new one. The name is put into a label, so it is no longer than a label's value.
func ValidateNamespacePopulation(updated, old *nsinit.NamespacePopulation) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&updated.ObjectMeta, false, apivalidation.NameIsDNSLabel, field.NewPath("metadata"))
	if old != nil {
		errs = append(errs, apivalidation.ValidateObjectMetaUpdate(&updated.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))...)
	}
	for i, manifest := range updated.Spec.Manifests {
		for _, problem := range utilvalidation.IsDNS1123Label(manifest.Name) {
			if manifest.Name != "" { // which is said already
				errs = append(errs, field.Invalid(field.NewPath("spec", "manifests").Index(i).Child("name"), manifest.Name, problem))
			}
		}
	}
	return errs
}

// ValidatePopulatedNamespace checks the record of a populated namespace; old is nil for a new
// one.
func ValidatePopulatedNamespace(updated, old *nsinit.PopulatedNamespace) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&updated.ObjectMeta, false, apivalidation.ValidateNamespaceName, field.NewPath("metadata"))
	if old != nil {
		errs = append(errs, apivalidation.ValidateObjectMetaUpdate(&updated.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))...)
		errs = append(errs, validateUID(updated.Spec.NamespaceUID, old.Spec.NamespaceUID)...)
	}
	return errs
}
