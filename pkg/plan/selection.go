/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// budget bounds the cost of all conditions of one plan, in CEL's units. It is what kube-apiserver spends on the
// matchConditions of one object.
const budget = 2_500_000

// Reason says why a registered initializer is not in a plan.
type Reason string

const (
	// ConfigurationDeleted entries belong to a configuration that is being deleted.
	ConfigurationDeleted Reason = "ConfigurationDeleted"
	// NameTaken entries have the name of another entry of the plan: an earlier configuration registers it, or a later one that
	// selects the namespace without a failure.
	NameTaken Reason = "NameTaken"
	// NotServed entries have the activation WhenServed, and no program has reported that it serves them.
	NotServed Reason = "NotServed"
	// SelectorMismatch entries have a namespaceSelector that does not match the labels of the namespace.
	SelectorMismatch Reason = "SelectorMismatch"
	// ConditionFalse entries have a condition that is false for the namespace.
	ConditionFalse Reason = "ConditionFalse"
)

// LeftOut is a registered initializer that is not in a plan.
type LeftOut struct {
	Initializer   string `json:"initializer"`
	Configuration string `json:"configuration"`
	Reason        Reason `json:"reason"`
	// Message is the reason for users.
	Message string `json:"message"`
}

// selection evaluates the selections of initializers for one namespace.
type selection struct {
	conditions *expressions.Selection
	namespace  *corev1.Namespace
	variables  map[string]any // made on demand
	left       uint64         // of the budget
}

// selectsAll reports whether an initializer selects every namespace.
func selectsAll(initializer *v1alpha1.RegisteredInitializer) bool {
	selector := initializer.NamespaceSelector
	return len(initializer.MatchConditions) == 0 && (selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0)
}

// exclude returns why an initializer is not selected, or an empty reason. What cannot be evaluated counts as a match, and is
// returned.
func (s *selection) exclude(initializer *v1alpha1.RegisteredInitializer) (reason Reason, message string, failures []string) {
	if initializer.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector)
		switch {
		case err != nil:
			failures = append(failures, fmt.Sprintf("namespaceSelector: %v", err))
		case !selector.Matches(labels.Set(s.namespace.Labels)):
			return SelectorMismatch, fmt.Sprintf("namespaceSelector %q does not match the labels of the namespace", metav1.FormatLabelSelector(initializer.NamespaceSelector)), nil
		}
	}
	for i := range initializer.MatchConditions {
		condition := &initializer.MatchConditions[i]
		holds, err := s.holds(condition.Expression)
		switch {
		case err != nil:
			failures = append(failures, fmt.Sprintf("matchCondition %q: %s", condition.Name, printable.Line(err.Error())))
		case !holds:
			return ConditionFalse, fmt.Sprintf("matchCondition %q is false: %s", condition.Name, condition.Expression), nil
		}
	}
	return "", "", failures
}

// holds evaluates an expression, as long as the budget lasts.
func (s *selection) holds(expression string) (bool, error) {
	if s.left == 0 {
		return false, errors.New("not evaluated: the conditions before it cost too much")
	}
	if s.variables == nil {
		s.variables = expressions.SelectionVariables(s.namespace)
	}
	holds, cost, err := s.conditions.Holds(expression, s.variables)
	s.left -= min(cost, s.left)
	return holds, err
}
