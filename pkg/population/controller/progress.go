/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// maxProblems and maxMessage bound the size of the status.
	maxProblems = 10
	maxMessage  = 512
	// lasting is how long an error lasts that is in the status.
	lasting = 5 * time.Second
)

// statusOf returns the state of the rollout of a population, or its report.
func statusOf(generation int64, tallies []tally) *v1alpha1.PopulationRolloutStatus {
	status := &v1alpha1.PopulationRolloutStatus{ObservedGeneration: generation, Namespaces: int32(len(tallies))}
	for _, t := range tallies {
		if t.isCurrent() {
			status.Current++
		}
		if t.unknown == 0 {
			status.Checked++
		}
		status.ToCreate += t.counts[population.Created]
		status.ToChange += t.counts[population.Configured]
		status.ToDelete += t.counts[population.Deleted]
		status.Unchanged += t.counts[population.Unchanged]
		status.Conflicts += t.counts[population.Conflict]
		status.Refused += t.counts[population.Refused]
		for _, problem := range t.problems {
			if len(status.Problems) == maxProblems {
				break
			}
			status.Problems = append(status.Problems, problemOf(t.view.source.Name, problem))
		}
	}
	return status
}

func problemOf(namespace string, result population.Result) v1alpha1.PopulationProblem {
	problem := v1alpha1.PopulationProblem{Namespace: namespace, Manifest: result.Manifest, Result: v1alpha1.ProblemRefused, Message: result.Message}
	if result.Outcome == population.Conflict {
		problem.Result = v1alpha1.ProblemConflict
	}
	problem.Message = printable.Shorten(problem.Message, maxMessage)
	return problem
}

// failing describes the first error that lasts, or nothing.
func failing(tallies []tally, now time.Time) string {
	for _, t := range tallies {
		if v := t.view; v.err != nil && !t.isRecorded() && now.Sub(v.failing) >= lasting {
			return fmt.Sprintf("; namespace %s is tried again after an error: %s", v.source.Name, printable.Shorten(v.err.Error(), maxMessage))
		}
	}
	return ""
}

// conditionOf returns the condition RolledOut. limit is that of the rollout.
func conditionOf(p *v1alpha1.NamespacePopulation, status *v1alpha1.PopulationRolloutStatus, tallies []tally, limit int) metav1.Condition {
	condition := notRolledOut(p, "", "")
	progress := fmt.Sprintf("%d of %d namespaces have received every object", status.Current, status.Namespaces)
	refusing := refusing(tallies)
	switch {
	case p.Spec.Rollout != v1alpha1.RolloutApply && status.Checked < status.Namespaces:
		condition.Reason, condition.Message = v1alpha1.ReasonRolloutReporting, fmt.Sprintf("the report describes %d of %d namespaces", status.Checked, status.Namespaces)
	case p.Spec.Rollout != v1alpha1.RolloutApply && status.Current == status.Namespaces:
		condition.Reason, condition.Message = v1alpha1.ReasonRolloutReported, progress
	case p.Spec.Rollout != v1alpha1.RolloutApply:
		condition.Reason = v1alpha1.ReasonRolloutReported
		condition.Message = fmt.Sprintf("%s. In the others, objects to create: %d, to change: %d, to delete: %d, in conflict: %d, refused: %d%s; to apply, set spec.rollout to Apply",
			progress, status.ToCreate, status.ToChange, status.ToDelete, status.Conflicts, status.Refused, first(status))
	case status.Current == status.Namespaces:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, v1alpha1.ReasonRolloutComplete, progress
	case refusing >= limit && status.Checked < status.Namespaces:
		condition.Reason = v1alpha1.ReasonRolloutPaused
		condition.Message = fmt.Sprintf("%s; paused because %d namespaces refused objects%s: fix the population or the permissions; "+
			"to leave a namespace out, exempt its name or change spec.namespaceSelector; "+
			"nsinit tries these namespaces again every minute, and continues when fewer than %d refuse objects or a dry run in another one succeeds", progress, refusing, first(status), limit)
	case status.Checked < status.Namespaces:
		condition.Reason, condition.Message = v1alpha1.ReasonRolloutProgressing, progress
	default:
		condition.Reason = v1alpha1.ReasonRolloutIncomplete
		condition.Message = fmt.Sprintf("%s. In the others, objects in conflict: %d, refused: %d%s; refused objects are tried again every minute, and conflicts after one to ten minutes, or when you change a label of the population",
			progress, status.Conflicts, status.Refused, first(status))
	}
	return condition
}

// notRolledOut returns the condition RolledOut while a rollout is not complete.
func notRolledOut(p *v1alpha1.NamespacePopulation, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, Reason: reason, Message: message}
}

// first describes the first problem.
func first(status *v1alpha1.PopulationRolloutStatus) string {
	if len(status.Problems) == 0 {
		return ""
	}
	problem := status.Problems[0]
	for _, p := range status.Problems {
		if p.Result == v1alpha1.ProblemRefused {
			problem = p // it needs an action
			break
		}
	}
	return fmt.Sprintf(", such as manifest %s in namespace %s: %s", problem.Manifest, problem.Namespace, problem.Message)
}
