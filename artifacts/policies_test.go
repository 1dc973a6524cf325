/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package artifacts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// gates returns the policies of gate.yaml and their bindings, by name.
func gates(t *testing.T) (map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec, map[string]admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	t.Helper()
	return parse(t, "gate.yaml")
}

// parse returns the policies of a file and their bindings, by name.
func parse(t *testing.T, file string) (map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec, map[string]admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	t.Helper()
	found := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
	bindings := map[string]admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{}
	for document := range strings.SplitSeq(read("policies/"+file), "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		switch policy.Kind {
		case "ValidatingAdmissionPolicy":
			found[policy.Name] = policy.Spec
		case "ValidatingAdmissionPolicyBinding":
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			if err := yaml.Unmarshal([]byte(document), &binding); err != nil {
				t.Fatal(err)
			}
			bindings[binding.Name] = binding.Spec
		}
	}
	return found, bindings
}

// TestGatesDeny: each gate is bound, for all that it matches, and refuses.
func TestGatesDeny(t *testing.T) {
	found, bindings := gates(t)
	want := map[string]admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{}
	for name := range found {
		want[name] = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}
	}
	if diff := cmp.Diff(want, bindings); diff != "" || len(found) != 2 {
		t.Errorf("%d gates; the bindings differ (-want +got):\n%s", len(found), diff)
	}
}

// TestAppliedAgree: the stamp restores what it finds missing in an apply, and the guard refuses the rest of the same applies.
func TestAppliedAgree(t *testing.T) {
	expressionOf := func(file string) string {
		_, after, found := strings.Cut(read("policies/"+file), "- name: applied")
		_, after, expression := strings.Cut(after, "expression: >-\n")
		if !found || !expression {
			t.Fatalf("%s has no variable applied", file)
		}
		before, _, _ := strings.Cut(after, "\n    - name:")
		return before
	}
	if diff := cmp.Diff(expressionOf("guard.yaml"), expressionOf("stamp.yaml")); diff != "" {
		t.Errorf("(-guard +stamp):\n%s", diff)
	}
}

// TestGatesAgree: the gate of resources named namespaces refuses whom the gate refuses, with the same words, and
// gates exactly what the gate leaves out.
func TestGatesAgree(t *testing.T) {
	found, _ := gates(t)
	gate, namesakes := found["nsinit-gate"], found["nsinit-gate-namesakes"]
	if len(gate.Validations) != 1 || len(namesakes.Validations) != 1 || len(namesakes.Variables) == 0 {
		t.Fatalf("gate.yaml has %+v", found)
	}
	if diff := cmp.Diff(gate.MatchConstraints.ExcludeResourceRules, namesakes.MatchConstraints.ResourceRules); diff != "" {
		t.Errorf("what the gate excludes differs from what the gate of namesakes matches (-gate +namesakes):\n%s", diff)
	}
	if namesakes.MatchConstraints.NamespaceSelector != nil {
		t.Error("the gate of namesakes has a namespaceSelector, which kube-apiserver evaluates on the object")
	}

	const condition = "!variables.closed || "
	own := namesakes.Variables[0]
	if want := `namespaceObject.metadata.?labels["` + gate.MatchConstraints.NamespaceSelector.MatchExpressions[0].Key + `"].hasValue()`; own.Name != "closed" || own.Expression != want {
		t.Errorf("the first variable is %+v, want closed: %s", own, want)
	}
	expected := gate.DeepCopy()
	expected.MatchConstraints = namesakes.MatchConstraints
	expected.Variables = slices.Insert(expected.Variables, 0, own)
	expected.Validations[0].Expression = condition + expected.Validations[0].Expression
	if diff := cmp.Diff(*expected, namesakes); diff != "" {
		t.Errorf("the policies differ by more than %q (-gate +namesakes):\n%s", condition, diff)
	}
}

// TestFreezeAgrees: a frozen namespace refuses what a closed one refuses, to the same users. Its other validations refuse more.
func TestFreezeAgrees(t *testing.T) {
	gate, bound := parse(t, "gate.yaml")
	freeze, bindings := parse(t, "freeze.yaml")
	for of, name := range map[string]string{"nsinit-gate": "nsinit-freeze", "nsinit-gate-namesakes": "nsinit-freeze-namesakes"} {
		want, got := gate[of], freeze[name]
		if diff := cmp.Diff(bound[of].ValidationActions, bindings[name].ValidationActions); diff != "" || bindings[name].PolicyName != name || len(got.Validations) < 2 {
			t.Fatalf("%s is bound as %+v", name, bindings[name])
		}
		text := strings.NewReplacer("nsinit.dev/initializing", v1alpha1.LabelFrozen, "variables.closed", "variables.frozen")
		constraints, err := yaml.Marshal(want.MatchConstraints)
		if err != nil {
			t.Fatal(err)
		}
		var expected admissionregistrationv1.MatchResources
		if err := yaml.Unmarshal([]byte(text.Replace(string(constraints))), &expected); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&expected, got.MatchConstraints); diff != "" {
			t.Errorf("%s matches (-gate +freeze):\n%s", name, diff)
		}
		if expression := text.Replace(want.Validations[0].Expression); expression != got.Validations[0].Expression || *got.FailurePolicy != *want.FailurePolicy {
			t.Errorf("%s allows %s with failurePolicy %s, want %s", name, got.Validations[0].Expression, *got.FailurePolicy, expression)
		}
	}
	frozen := freeze["nsinit-freeze-namesakes"].Variables[0]
	if want := `namespaceObject.metadata.?labels["` + v1alpha1.LabelFrozen + `"].hasValue()`; frozen.Name != "frozen" || frozen.Expression != want {
		t.Errorf("the first variable is %+v", frozen)
	}
	for i, validation := range freeze["nsinit-freeze-namesakes"].Validations {
		if want := freeze["nsinit-freeze"].Validations[i].MessageExpression; validation.MessageExpression != want {
			t.Errorf("the messages of validation %d are %q and %q", i, want, validation.MessageExpression)
		}
	}
}
