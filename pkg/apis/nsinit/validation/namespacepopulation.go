/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// maxManifestsSize is the size of the manifests of a population in bytes. etcd refuses larger objects, with an error that names no field.
const maxManifestsSize = 1 << 20

// ValidateNamespacePopulation validates a population, except for its expressions. For a new one,
// old is nil. The name must be a valid value of a label.
func ValidateNamespacePopulation(updated, old *nsinit.NamespacePopulation) field.ErrorList {
	errs := validateMeta(updated, old, apivalidation.NameIsDNSLabel)
	for i, manifest := range updated.Spec.Manifests {
		for _, problem := range utilvalidation.IsDNS1123Label(manifest.Name) {
			if manifest.Name != "" { // reported by the generated validation
				errs = append(errs, field.Invalid(field.NewPath("spec", "manifests").Index(i).Child("name"), manifest.Name, problem))
			}
		}
	}
	if size := sizeOf(updated); size > maxManifestsSize && (old == nil || size > sizeOf(old)) {
		errs = append(errs, &field.Error{Type: field.ErrorTypeTooLong, Field: "spec.manifests", BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("the manifests have %d bytes in total, and may have at most %d: distribute them over several populations", size, maxManifestsSize)})
	}
	if spec := &updated.Spec; spec.Rollout != "" && spec.Scope != v1alpha1.ScopeAll {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "rollout"),
			fmt.Sprintf("it is %q, and needs scope %s: with scope %q, namespaces that exist already get nothing; remove rollout or change scope", spec.Rollout, v1alpha1.ScopeAll, spec.Scope)))
	}
	return errs
}

// sizeOf returns the size of the manifests of a population in bytes.
func sizeOf(population *nsinit.NamespacePopulation) (size int) {
	for _, manifest := range population.Spec.Manifests {
		size += len(manifest.Template.Raw)
	}
	return size
}

// ValidatePopulatedNamespace validates a PopulatedNamespace. For a new one, old is nil.
func ValidatePopulatedNamespace(updated, old *nsinit.PopulatedNamespace) field.ErrorList {
	errs := validateMeta(updated, old, apivalidation.ValidateNamespaceName)
	if old != nil {
		errs = append(errs, validateUID(updated.Spec.NamespaceUID, old.Spec.NamespaceUID)...)
	}
	return errs
}
