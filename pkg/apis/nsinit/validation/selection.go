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

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// validateSelection checks how an initializer selects namespaces, except for its expressions. The generated validation
// reports absent and duplicate names.
func validateSelection(initializer *v1alpha1.RegisteredInitializer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, condition := range initializer.MatchConditions {
		if condition.Name == "" {
			continue
		}
		for _, problem := range validation.IsQualifiedName(condition.Name) {
			errs = append(errs, field.Invalid(path.Child("matchConditions").Index(i).Child("name"), condition.Name, problem))
		}
	}
	return append(errs, metav1validation.ValidateLabelSelector(initializer.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
}

// ValidateExpressions reports each expression of matchConditions for which check returns an error. For a new
// configuration, old is nil. Expressions that old has are not checked, so that a version that accepts less does not
// prevent other changes. The generated validation reports absent expressions.
func ValidateExpressions(configuration, old *nsinit.NamespaceInitializerConfiguration, check func(expression string) error) field.ErrorList {
	known := sets.New("")
	if old != nil {
		for _, initializer := range old.Initializers {
			for _, condition := range initializer.MatchConditions {
				known.Insert(condition.Expression)
			}
		}
	}
	var errs field.ErrorList
	for i, initializer := range configuration.Initializers {
		for j, condition := range initializer.MatchConditions {
			if known.Has(condition.Expression) {
				continue
			}
			if err := check(condition.Expression); err != nil {
				errs = append(errs, field.Invalid(field.NewPath("initializers").Index(i).Child("matchConditions").Index(j).Child("expression"), condition.Expression, err.Error()))
			}
		}
	}
	return errs
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
