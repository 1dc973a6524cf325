/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// validateSelection checks how an initializer selects namespaces, except for expressions that were known before. The generated
// validation reports absent expressions, and absent and duplicate names.
func validateSelection(initializer *v1alpha1.RegisteredInitializer, known sets.Set[string], check func(expression string) error, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, condition := range initializer.MatchConditions {
		at := path.Child("matchConditions").Index(i)
		if condition.Name != "" {
			for _, problem := range validation.IsQualifiedName(condition.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), condition.Name, problem))
			}
		}
		if known.Has(condition.Expression) {
			continue
		}
		if err := check(condition.Expression); err != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), condition.Expression, err.Error()))
		}
	}
	return append(errs, metav1validation.ValidateLabelSelector(initializer.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
}

// validateSelected refuses a plan that selects namespaces: it belongs to one, for which the selection was evaluated.
func validateSelected(planned *v1alpha1.RegisteredInitializer, path *field.Path) field.ErrorList {
	const reason = "a plan selects no namespaces: leave it out"
	var errs field.ErrorList
	if len(planned.MatchConditions) > 0 {
		errs = append(errs, field.Forbidden(path.Child("matchConditions"), reason))
	}
	if planned.NamespaceSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("namespaceSelector"), reason))
	}
	return errs
}
