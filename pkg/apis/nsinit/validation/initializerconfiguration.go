/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// onlyHeld is why a rule cannot name another resource.
const onlyHeld = "Kubernetes can hold only pods (apiGroups [\"\"]) and jobs (apiGroups [\"batch\"]), with apiVersions [\"v1\"]: " +
	"controllers use objects of every other kind before their initializers are done; docs/decisions.md says why"

// ValidateInitializerConfiguration validates a configuration for pods and Jobs, like ValidateNamespaceInitializerConfiguration.
func ValidateInitializerConfiguration(configuration, old *nsinit.InitializerConfiguration, check func(expression string) error) field.ErrorList {
	errs := validateMeta(configuration, old, apivalidation.NameIsDNSSubdomain)
	names, expressions := sets.New[string](), sets.New("")
	if old != nil {
		names.Insert(old.InitializerNames()...)
		for _, initializer := range old.Initializers {
			for _, condition := range initializer.MatchConditions {
				expressions.Insert(condition.Expression)
			}
		}
	}
	for i := range configuration.Initializers {
		initializer, path := &configuration.Initializers[i], field.NewPath("initializers").Index(i)
		errs = append(errs, validateInitializerName(initializer.Name, path.Child("name"))...)
		// The name becomes that of a scheduling gate and of a label.
		for _, problem := range validation.IsQualifiedName(v1alpha1.PendingPrefix + initializer.Name) {
			if initializer.Name != "" {
				errs = append(errs, field.Invalid(path.Child("name"), initializer.Name, "must be a domain name of at most 63 characters: "+problem))
			}
		}
		common := &v1alpha1.RegisteredInitializer{
			Name: initializer.Name, FailurePolicy: initializer.FailurePolicy, TimeoutSeconds: initializer.TimeoutSeconds,
			MatchConditions: initializer.MatchConditions, NamespaceSelector: initializer.NamespaceSelector,
		}
		errs = append(errs, validateDeadline(common, path)...)
		errs = append(errs, validateSelection(common, expressions, check, path)...)
		errs = append(errs, validateNewFail(common, names, "object", path)...)
		for j := range initializer.Rules {
			errs = append(errs, validateRule(&initializer.Rules[j], path.Child("rules").Index(j))...)
		}
	}
	return errs
}

// validateRule accepts only combinations that Kubernetes can hold: a group that is listed must have one of the resources.
func validateRule(rule *v1alpha1.Rule, path *field.Path) (errs field.ErrorList) {
	check := func(name string, values []string, known func(value string) bool) {
		switch {
		case len(values) == 0:
			errs = append(errs, field.Required(path.Child(name), onlyHeld))
		case len(values) > 1 && slices.Contains(values, "*"):
			errs = append(errs, field.Invalid(path.Child(name), values, "* must be the only item"))
		}
		for i, value := range values {
			if !known(value) {
				errs = append(errs, field.Invalid(path.Child(name).Index(i), value, onlyHeld))
			}
		}
	}
	check("apiGroups", rule.APIGroups, func(group string) bool {
		return group == "*" || slices.ContainsFunc(rule.Resources, func(resource string) bool { return group == v1alpha1.HeldResources()[resource] })
	})
	check("apiVersions", rule.APIVersions, func(version string) bool { return version == "*" || version == "v1" })
	check("resources", rule.Resources, func(resource string) bool {
		group, held := v1alpha1.HeldResources()[resource]
		return held && (slices.Contains(rule.APIGroups, group) || slices.Contains(rule.APIGroups, "*"))
	})
	return errs
}
