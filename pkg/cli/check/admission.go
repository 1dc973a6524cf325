/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/sdk/util/printable"
)

const validatingPolicy, mutatingPolicy = "validatingadmissionpolicy/", "mutatingadmissionpolicy/"

// request is one without which nsinit does not work.
type request struct {
	resource    schema.GroupVersionResource
	subresource string
	operation   admission.Operation
	// inside says that the object is in the namespace of nsinit.
	inside bool
	// labels are those of the object.
	labels labels.Set
	// without is what happens if it is refused.
	without string
}

func (r request) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s of %s/%s", r.operation, r.resource.Resource, r.subresource), "/")
}

// needed returns the requests of nsinit-controller-manager, those of nsinit-apiserver, and those for pods of both.
func needed() []request {
	core := corev1.SchemeGroupVersion
	created := labels.Set{corev1.LabelMetadataName: "a-new-namespace"}
	return []request{
		{resource: core.WithResource("namespaces"), subresource: "status", operation: admission.Update, labels: created, without: "no namespace opens"},
		{resource: core.WithResource("namespaces"), operation: admission.Update, labels: created, without: "no namespace with participants is removed"},
		{resource: core.WithResource("namespaces"), subresource: "finalize", operation: admission.Update, labels: created, without: "no namespace with participants is removed"},
		{resource: core.WithResource("pods"), operation: admission.Create, inside: true, labels: labels.Set{"app.kubernetes.io/part-of": "nsinit"}, without: "no pod of nsinit starts"},
		{resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, operation: admission.Update, inside: true, without: "nsinit-controller-manager does nothing"},
		{resource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}, operation: admission.Create, without: "the API of nsinit is not registered"},
		{resource: schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}, operation: admission.Create, without: "nsinit-apiserver refuses requests"},
		{resource: schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}, operation: admission.Create, without: "nsinit-apiserver refuses requests"},
	}
}

// scope is which requests a webhook, a policy or its binding selects. The conditions of a webhook or a policy are not evaluated.
type scope struct {
	rules, excluded    []admissionregistrationv1.NamedRuleWithOperations
	namespaces, object *metav1.LabelSelector
}

// scopeOf returns the scope of a policy or of its binding. Without rules, a binding selects what its policy does.
func scopeOf(match *admissionregistrationv1.MatchResources) scope {
	if match == nil {
		match = &admissionregistrationv1.MatchResources{}
	}
	s := scope{match.ResourceRules, match.ExcludeResourceRules, match.NamespaceSelector, match.ObjectSelector}
	if len(s.rules) == 0 {
		s.rules = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{"*"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}}}}
	}
	return s
}

// selects reports whether a request is in the scope. Neither a new namespace nor that of nsinit has further labels.
func (s scope) selects(r request, namespace string) bool {
	inside, selected := "", r.labels
	if r.inside {
		inside, selected = namespace, labels.Set{corev1.LabelMetadataName: namespace}
	}
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, inside, "", r.resource, r.subresource, r.operation, nil, false, nil)
	matches := func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return len(rule.ResourceNames) == 0 && (&rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}).Matches()
	}
	// Objects that are in no namespace, other than namespaces, have no labels to select them by.
	byNamespace := r.inside || r.resource.Resource == "namespaces"
	return slices.ContainsFunc(s.rules, matches) && !slices.ContainsFunc(s.excluded, matches) &&
		(!byNamespace || matchesLabels(s.namespaces, selected)) && matchesLabels(s.object, r.labels)
}

// matchesLabels reports whether a selector, which is optional, selects labels.
func matchesLabels(selector *metav1.LabelSelector, set labels.Set) bool {
	if selector == nil {
		return true
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && selects.Matches(set)
}

// affected returns the needed requests that all scopes select, and what happens if they are refused, in words.
func (i *inspection) affected(scopes ...scope) (what, without string) {
	var requests, effects []string
	for _, r := range needed() {
		if !slices.ContainsFunc(scopes, func(s scope) bool { return !s.selects(r, i.namespace) }) {
			requests = append(requests, r.String())
			if !slices.Contains(effects, r.without) {
				effects = append(effects, r.without)
			}
		}
	}
	return strings.Join(requests, ", "), strings.Join(effects, "; ")
}

// own reports whether a policy or a webhook is of nsinit, and then adds it to what a former installation has left.
func (i *inspection) own(name string) bool {
	is := strings.Contains(name, "/nsinit-")
	if is {
		i.leftovers = append(i.leftovers, name)
	}
	return is
}

// webhooks checks the admission webhooks of other programs on which nsinit depends.
func (i *inspection) webhooks(ctx context.Context) {
	const check = "Webhooks"
	answer := i.Webhooks(ctx)
	if answer.Err != nil {
		i.unknown(check, answer.Err)
	}
	problems := len(i.results)
	for _, webhook := range answer.Object {
		s := scope{namespaces: webhook.NamespaceSelector, object: webhook.ObjectSelector}
		for _, rule := range webhook.Rules {
			s.rules = append(s.rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
		}
		what, without := i.affected(s)
		if i.own(webhook.Configuration) || what == "" || ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
			continue
		}
		state, when, lack := Warning, "while it does not answer,", ""
		remedy := "run several replicas of its server, or exclude these requests: kubectl edit " + printable.WordOr(webhook.Configuration, "WEBHOOK")
		if service := webhook.ClientConfig.Service; service != nil {
			var err error
			if lack, _, err = i.Unserved(ctx, *service); err != nil {
				i.unknown(check, err)
			}
			if lack != "" {
				state, when = Problem, fmt.Sprintf("its service %s/%s %s, so", service.Namespace, service.Name, lack)
				remedy = "start its server, or delete the webhook if its program was uninstalled: kubectl delete " + printable.WordOr(webhook.Configuration, "WEBHOOK")
			}
		}
		if len(webhook.MatchConditions) > 0 {
			what += " that meet its matchConditions"
		}
		i.add(check, state, remedy, "webhook %q of %s has failurePolicy Fail for %s: %s %s", webhook.Name, webhook.Configuration, what, when, without)
	}
	if len(i.results) == problems {
		i.add(check, OK, "", "of %d admission webhooks, nsinit depends on none", len(answer.Object))
	}
}

// policies checks the admission policies of other programs that can refuse or change what nsinit writes. A policy without a binding
// does nothing.
func (i *inspection) policies(ctx context.Context) {
	const check = "OtherPolicies"
	client := i.Core.AdmissionregistrationV1()
	validating, err := client.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	validatingBindings, bindingsErr := client.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	mutating, mutatingErr := client.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	mutatingBindings, mutatingBindingsErr := client.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if i.webhookStamps { // these kinds do not exist
		mutatingErr, mutatingBindingsErr = nil, nil
	}
	if err := cmp.Or(err, bindingsErr, mutatingErr, mutatingBindingsErr); err != nil {
		i.unknown(check, err)
		return
	}
	bound := map[string][]*admissionregistrationv1.MatchResources{}
	for _, binding := range validatingBindings.Items {
		if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
			name := validatingPolicy + binding.Spec.PolicyName
			bound[name] = append(bound[name], binding.Spec.MatchResources)
		}
	}
	for _, binding := range mutatingBindings.Items {
		name := mutatingPolicy + binding.Spec.PolicyName
		bound[name] = append(bound[name], binding.Spec.MatchResources)
	}
	problems, count := len(i.results), 0
	judge := func(name string, match *admissionregistrationv1.MatchResources) {
		if i.own(name) {
			return
		}
		count++
		for _, binding := range bound[name] {
			if what, without := i.affected(scopeOf(match), scopeOf(binding)); what != "" {
				i.add(check, Warning, "check that it admits the service accounts of namespace "+i.namespace+": kubectl get "+printable.WordOr(name, "POLICY")+" --output yaml",
					"%s applies to %s: if it refuses nsinit, %s", name, what, without)
				return
			}
		}
	}
	for _, policy := range validating.Items {
		judge(validatingPolicy+policy.Name, policy.Spec.MatchConstraints)
	}
	for _, policy := range mutating.Items {
		judge(mutatingPolicy+policy.Name, policy.Spec.MatchConstraints)
	}
	if len(i.results) == problems {
		i.add(check, OK, "", "of %d policies of other programs, none applies to what nsinit writes", count)
	}
}
