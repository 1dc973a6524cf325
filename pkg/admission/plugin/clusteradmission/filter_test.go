/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// ours returns registrations for one resource.
func ours() *Registrations {
	return &Registrations{resources: []schema.GroupVersionResource{{Group: "nsinit.dev", Version: "v1alpha1", Resource: "namespacepopulations"}}}
}

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
	for _, rule := range rules {
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	return p
}

func TestMatches(t *testing.T) {
	all, namespaced, cluster := admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope
	for name, test := range map[string]struct {
		object runtime.Object
		want   bool
	}{
		"everything":           {policy(rule("*", "*", "*/*", all)), true},
		"every resource":       {policy(rule("*", "*", "*", cluster)), true},
		"the group":            {policy(rule("nsinit.dev", "*", "*", all)), true},
		"the resource":         {policy(rule("nsinit.dev", "v1alpha1", "namespacepopulations", all)), true},
		"its deletion":         {policy(rule("nsinit.dev", "v1alpha1", "namespacepopulations", all, admissionregistrationv1.Delete)), true},
		"the second rule":      {policy(rule("", "v1", "pods", all), rule("nsinit.dev", "*", "*", all)), true},
		"no rules":             {policy(), true},
		"no constraints":       {&admissionregistrationv1.ValidatingAdmissionPolicy{}, true},
		"another group":        {policy(rule("", "*", "*", all)), false},
		"another version":      {policy(rule("nsinit.dev", "v2", "*", all)), false},
		"another resource":     {policy(rule("nsinit.dev", "*", "namespacelifecycles", all)), false},
		"its status":           {policy(rule("nsinit.dev", "*", "namespacepopulations/status", all)), false},
		"objects in namespace": {policy(rule("*", "*", "*", namespaced)), false},
		"connections":          {policy(rule("*", "*", "*", all, admissionregistrationv1.Connect)), false},
		"a mutating policy": {&admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: policy(rule("", "*", "*", all)).Spec.MatchConstraints}}, false},
		"a binding": {&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, true},
		"a validating webhook": {&admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Rules: []admissionregistrationv1.RuleWithOperations{rule("", "*", "*", all)}}, {Rules: []admissionregistrationv1.RuleWithOperations{rule("*", "*", "*", all)}}}}, true},
		"another validating webhook": {&admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Rules: []admissionregistrationv1.RuleWithOperations{rule("", "*", "*", all)}}}}, false},
		"a mutating webhook": {&admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Rules: []admissionregistrationv1.RuleWithOperations{rule("nsinit.dev", "*", "*", all)}}}}, true},
		"a webhook without rules": {&admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ours().matches(test.object); got != test.want {
				t.Errorf("it matches: %v", got)
			}
		})
	}
}

// TestFiltered: an informer has the policies that match now, those of the list and those that are changed later.
func TestFiltered(t *testing.T) {
	matching, other := rule("nsinit.dev", "*", "*", admissionregistrationv1.AllScopes), rule("", "*", "*", admissionregistrationv1.AllScopes)
	named := func(name string, r admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.ValidatingAdmissionPolicy {
		p := policy(r)
		p.Name = name
		return p
	}
	client := fake.NewClientset(named("listed", matching), named("stays-out", other), named("comes", other), named("leaves", matching))
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	informer := cache.NewSharedIndexInformer(filtered(client, policies, ours().matches), &admissionregistrationv1.ValidatingAdmissionPolicy{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	waitFor := func(want ...string) {
		t.Helper()
		var got []string
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			got = informer.GetStore().ListKeys()
			slices.Sort(got)
			return slices.Equal(got, want), nil
		}); err != nil {
			t.Fatalf("%v: it has %v, want %v", err, got, want)
		}
	}
	waitFor("leaves", "listed")
	for _, changed := range []*admissionregistrationv1.ValidatingAdmissionPolicy{named("comes", matching), named("leaves", other)} {
		if _, err := policies.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, created := range []*admissionregistrationv1.ValidatingAdmissionPolicy{named("new", matching), named("new-other", other)} {
		if _, err := policies.Create(ctx, created, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor("comes", "listed", "new")
	if err := policies.Delete(ctx, "listed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor("comes", "new")
}
