/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// shownDegradations is how many degradations the condition shows.
	shownDegradations = 8
	// maxDegradation is the length, in bytes, of the longest one that it shows.
	maxDegradation = 1024
)

// Degradation is a difference between a plan and what the configurations say.
type Degradation struct {
	// Reason is the reason of the condition PlanDegraded.
	Reason string
	// Message says what differs, and what to do.
	Message string
}

// expressionFailed is the degradation for an expression that failed and counted as a match.
func expressionFailed(configuration, initializer, failure string) Degradation {
	return Degradation{v1alpha1.ReasonExpressionFailed, fmt.Sprintf("initializer %q of configuration %q is in the plan because an expression failed, which counts as a match: %s",
		initializer, configuration, failure)}
}

// Condition returns the condition PlanDegraded without a time, or nil if the plan is as the configurations say. It has
// the reason of the first degradation.
func (p *Plan) Condition() *metav1.Condition {
	if len(p.Degradations) == 0 {
		return nil
	}
	var messages []string
	for _, d := range p.Degradations[:min(len(p.Degradations), shownDegradations)] {
		if len(d.Message) > maxDegradation {
			d.Message = strings.ToValidUTF8(d.Message[:maxDegradation], "") + "..."
		}
		messages = append(messages, d.Message)
	}
	if more := len(p.Degradations) - shownDegradations; more > 0 {
		messages = append(messages, fmt.Sprintf("and %d more", more))
	}
	return &metav1.Condition{Type: v1alpha1.ConditionPlanDegraded, Status: metav1.ConditionTrue, Reason: p.Degradations[0].Reason, Message: strings.Join(messages, "; ")}
}
