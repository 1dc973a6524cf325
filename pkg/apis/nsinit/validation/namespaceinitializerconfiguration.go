/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// ValidateNamespaceInitializerConfiguration validates a configuration. For a new one, old is nil. check returns why an expression of
// matchConditions is not valid, or nil. Expressions that old has are not checked, so that a version that accepts less does not prevent
// other changes.
func ValidateNamespaceInitializerConfiguration(configuration, old *nsinit.NamespaceInitializerConfiguration, check func(expression string) error) field.ErrorList {
	errs := validateMeta(configuration, old, apivalidation.NameIsDNSSubdomain)
	names, expressions := sets.New[string](), sets.New("")
	if old != nil {
		for _, initializer := range old.Initializers {
			names.Insert(initializer.Name)
			for _, condition := range initializer.MatchConditions {
				expressions.Insert(condition.Expression)
			}
		}
	}
	for i, initializer := range configuration.Initializers {
		path := field.NewPath("initializers").Index(i)
		errs = append(errs, validateInitializerName(initializer.Name, path.Child("name"))...)
		if initializer.Name == v1alpha1.InitializerLifecycle {
			errs = append(errs, field.Forbidden(path.Child("name"),
				fmt.Sprintf("%q is built in and cannot be registered: choose a name in your domain", initializer.Name)))
		}
		errs = append(errs, validateDeadline(&initializer, path)...)
		errs = append(errs, validateSelection(&initializer, expressions, check, path)...)
		if initializer.Holds != nil && !initializer.Finalizer {
			errs = append(errs, field.Invalid(path.Child("holds"), *initializer.Holds,
				"only an initializer with finalizer: true acts when the namespace is deleted: set finalizer, or remove holds"))
		}
		errs = append(errs, validateNewFail(&initializer, names, "namespace", path)...)
	}
	errs = append(errs, validateOrder(configuration.Initializers, field.NewPath("initializers"))...)
	return append(errs, validateFinalizers(configuration.Spec.Finalizers, field.NewPath("spec", "finalizers"))...)
}

// validateNewFail refuses an initializer that begins with Fail. Until the initializer runs, it would fail every new object. It is new if
// its name is: so is one that was renamed, or removed and added again. The design of dynamic admission configuration has this rule.
func validateNewFail(initializer *v1alpha1.RegisteredInitializer, known sets.Set[string], what string, path *field.Path) field.ErrorList {
	if initializer.FailurePolicy == nil || *initializer.FailurePolicy != v1alpha1.Fail || known.Has(initializer.Name) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("failurePolicy"),
		fmt.Sprintf("%s would fail every new %s until initializer %q runs: add the initializer with %s or without a failurePolicy, and set %s by a later update once it runs",
			v1alpha1.Fail, what, initializer.Name, v1alpha1.Ignore, v1alpha1.Fail))}
}
