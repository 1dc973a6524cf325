/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package artifacts

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestContentRefuses: only deletions by the namespace controller are refused, in a namespace whose content is kept.
func TestContentRefuses(t *testing.T) {
	const (
		controller = "system:serviceaccount:kube-system:namespace-controller"
		manager    = "system:kube-controller-manager" // without credentials of service accounts
	)
	var (
		empties  = map[string]any{"kind": "DeleteOptions", "propagationPolicy": "Background"}
		collects = map[string]any{"kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": map[string]any{"uid": "1"}}
		plain    = map[string]any{"kind": "DeleteOptions"}
		kept     = map[string]any{"finalizers": []string{v1alpha1.NamespaceFinalizer, v1alpha1.ContentFinalizer}}
		deleted  = map[string]any{"finalizers": kept["finalizers"], "deletionTimestamp": "2026-11-21T00:08:02Z"}
		released = map[string]any{"finalizers": []string{v1alpha1.NamespaceFinalizer}, "deletionTimestamp": "2026-11-21T00:08:02Z"}
		others   = map[string]any{"deletionTimestamp": "2026-11-21T00:08:02Z"}
	)
	found, bindings := parse(t, "content.yaml")
	policy, binding := found["nsinit-content"], bindings["nsinit-content"]
	if len(policy.MatchConditions) != 1 || len(policy.Validations) != 1 || len(binding.ValidationActions) != 1 || binding.ValidationActions[0] != admissionregistrationv1.Deny {
		t.Fatalf("%+v, bound as %+v", policy, binding)
	}
	matches, allows := program(t, policy.MatchConditions[0].Expression), program(t, policy.Validations[0].Expression)
	for name, test := range map[string]struct {
		user               string
		options, namespace map[string]any
		refused            bool
	}{
		"the namespace is deleted":                            {controller, empties, deleted, true},
		"kube-apiserver has not seen the deletion":            {controller, empties, kept, true},
		"the content is released":                             {controller, empties, released, false},
		"no finalizers":                                       {controller, empties, others, false},
		"the common user, the namespace is deleted":           {manager, empties, deleted, true},
		"the common user, the namespace is not deleted":       {manager, empties, kept, false},
		"the garbage collector as the common user":            {manager, collects, deleted, false},
		"another controller as the common user":               {manager, plain, deleted, false},
		"the garbage collector":                               {"system:serviceaccount:kube-system:generic-garbage-collector", empties, deleted, false},
		"a user":                                              {"alice", empties, deleted, false},
		"a service account of the same name, in another one,": {"system:serviceaccount:shop:namespace-controller", empties, deleted, false},
	} {
		t.Run(name, func(t *testing.T) {
			input := map[string]any{
				"request":         map[string]any{"userInfo": map[string]any{"username": test.user}, "options": test.options},
				"namespaceObject": map[string]any{"metadata": test.namespace},
			}
			matched, _, err := matches.Eval(input)
			if err != nil {
				t.Fatal(err)
			}
			allowed, _, err := allows.Eval(input)
			if err != nil {
				t.Fatal(err)
			}
			if refused := matched.Value() == true && allowed.Value() == false; refused != test.refused {
				t.Errorf("refused %t: matched %v, allowed %v", refused, matched, allowed)
			}
		})
	}
}
