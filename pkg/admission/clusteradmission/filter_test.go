/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rule returns a rule for every operation.
func rule(group, version, resource string, scope admissionregistrationv1.ScopeType, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	if operations == nil {
		operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	return admissionregistrationv1.RuleWithOperations{Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: new(scope)}}
}

// policy returns a policy with rules.
func policy(rules ...admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.ValidatingAdmissionPolicy {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false"}}
	for _, rule := range rules {
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	return p
}

// TestReduced: policies that cannot match keep only their rules, and webhooks that cannot match are removed.
func TestReduced(t *testing.T) {
	all, namespaced, cluster := admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope
	for name, test := range map[string]struct {
		rules []admissionregistrationv1.RuleWithOperations
		want  bool
	}{
		"everything":           {these(rule("*", "*", "*/*", all)), true},
		"every resource":       {these(rule("*", "*", "*", cluster)), true},
		"the group":            {these(rule("nsinit.dev", "*", "*", all)), true},
		"the resource":         {these(rule("nsinit.dev", "v1alpha1", "namespacepopulations", all)), true},
		"its deletion":         {these(rule("nsinit.dev", "v1alpha1", "namespacepopulations", all, admissionregistrationv1.Delete)), true},
		"the other resource":   {these(rule("nsinit.dev", "v1alpha1", "namespaceinitializerconfigurations", all)), true},
		"the second rule":      {these(rule("", "v1", "pods", all), rule("nsinit.dev", "*", "*", all)), true},
		"another group":        {these(rule("", "*", "*", all)), false},
		"another version":      {these(rule("nsinit.dev", "v2", "*", all)), false},
		"another resource":     {these(rule("nsinit.dev", "*", "namespacelifecycles", all)), false},
		"its status":           {these(rule("nsinit.dev", "*", "namespacepopulations/status", all)), false},
		"objects in namespace": {these(rule("*", "*", "*", namespaced)), false},
		"connections":          {these(rule("*", "*", "*", all, admissionregistrationv1.Connect)), false},
	} {
		t.Run(name, func(t *testing.T) { testReduced(t, test.rules, test.want) })
	}
	if kept := reduce(t, policy()).(*admissionregistrationv1.ValidatingAdmissionPolicy); len(kept.Spec.Validations) == 0 {
		t.Error("a policy without rules, which matches everything, loses its content")
	}
	if kept := reduce(t, &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{}}}).(*admissionregistrationv1.ValidatingWebhookConfiguration); len(kept.Webhooks) != 0 {
		t.Error("a webhook without rules, which matches nothing, stays")
	}
}

func these(rules ...admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	return rules
}

func reduce(t *testing.T, object any) any {
	t.Helper()
	result, err := reduced(object)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// testReduced reduces each kind with the rules. It checks whether the content, and a webhook that does not match, stay.
func testReduced(t *testing.T, rules []admissionregistrationv1.RuleWithOperations, want bool) {
	t.Helper()
	managed := metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{}}}
	other := []admissionregistrationv1.RuleWithOperations{rule("", "*", "pods", admissionregistrationv1.AllScopes)}
	constraints := policy(rules...).Spec.MatchConstraints
	validating := reduce(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: managed, Spec: policy(rules...).Spec}).(*admissionregistrationv1.ValidatingAdmissionPolicy)
	mutating := reduce(t, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: managed, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: constraints, Mutations: []admissionregistrationv1.Mutation{{}}}}).(*admissionregistrationv1.MutatingAdmissionPolicy)
	for name, kept := range map[string]bool{"a validating policy": len(validating.Spec.Validations) > 0, "a mutating policy": len(mutating.Spec.Mutations) > 0} {
		if kept != want {
			t.Errorf("%s keeps its content: %v", name, kept)
		}
	}
	if !equality.Semantic.DeepEqual(validating.Spec.MatchConstraints, constraints) || !equality.Semantic.DeepEqual(mutating.Spec.MatchConstraints, constraints) {
		t.Error("a policy loses its rules")
	}
	if validating.Name != "p" || validating.ManagedFields != nil {
		t.Errorf("the metadata is %+v", validating.ObjectMeta)
	}
	v := reduce(t, &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{Rules: other}, {Name: "w", Rules: rules}}}).(*admissionregistrationv1.ValidatingWebhookConfiguration)
	if want != (len(v.Webhooks) == 1 && v.Webhooks[0].Name == "w") || !want && len(v.Webhooks) > 0 {
		t.Errorf("the validating webhooks are %+v", v.Webhooks)
	}
	m := reduce(t, &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{Rules: other}, {Name: "w", Rules: rules}}}).(*admissionregistrationv1.MutatingWebhookConfiguration)
	if want != (len(m.Webhooks) == 1 && m.Webhooks[0].Name == "w") || !want && len(m.Webhooks) > 0 {
		t.Errorf("the mutating webhooks are %+v", m.Webhooks)
	}
}
