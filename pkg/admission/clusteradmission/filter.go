/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/nsinit/nsinit/sdk/util/cached"
)

// reduced is a cache.TransformFunc that removes the content of policies, and the webhooks, that cannot match a request to the
// Resources. The rules of a policy stay, so it still does not match.
func reduced(object any) (any, error) {
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		if constraints := o.Spec.MatchConstraints; !matchesResources(constraints) {
			o.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: constraints}
		}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		if constraints := o.Spec.MatchConstraints; !matchesResources(constraints) {
			o.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{MatchConstraints: constraints}
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		o.Webhooks = slices.DeleteFunc(o.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return !slices.ContainsFunc(w.Rules, matchesRule)
		})
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		o.Webhooks = slices.DeleteFunc(o.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return !slices.ContainsFunc(w.Rules, matchesRule)
		})
	}
	return cached.WithoutManagedFields(object)
}

// matchesResources says whether a policy can match. Without rules, it matches every resource.
func matchesResources(constraints *admissionregistrationv1.MatchResources) bool {
	return constraints == nil || len(constraints.ResourceRules) == 0 ||
		slices.ContainsFunc(constraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return matchesRule(rule.RuleWithOperations)
		})
}

// matchesRule says whether a rule matches a request to one of the Resources.
func matchesRule(rule admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(Resources(), func(resource schema.GroupVersionResource) bool {
		return slices.ContainsFunc([]admission.Operation{admission.Create, admission.Update, admission.Delete}, func(operation admission.Operation) bool {
			matcher := rules.Matcher{Rule: rule, Attr: admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", resource, "", operation, nil, false, nil)}
			return matcher.Matches()
		})
	})
}
