/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// onlyReported says whether programs have reported that they serve initializers, and nothing else has
// changed. Then no namespace needs to be counted.
func onlyReported(oldConfiguration, newConfiguration *v1alpha1.NamespaceInitializerConfiguration) bool {
	if equality.Semantic.DeepEqual(oldConfiguration.Status.Initializers, newConfiguration.Status.Initializers) {
		return false
	}
	before, after := oldConfiguration.Status, newConfiguration.Status
	before.Initializers, after.Initializers = nil, nil
	return equality.Semantic.DeepEqual(before, after) && equality.Semantic.DeepEqual(oldConfiguration.Spec, newConfiguration.Spec)
}

// reportedNames returns the names of the initializers for which a program has ever reported.
func reportedNames(configuration *v1alpha1.NamespaceInitializerConfiguration) []string {
	var names []string
	for _, entry := range configuration.Status.Initializers {
		if entry.ReportTime != nil {
			names = append(names, entry.Name)
		}
	}
	return names
}

// SetServed sets the condition Served of each initializer that never reported, or whose last report is
// too old, in entries of status.initializers. The server sets the condition with a report. It returns the time until the next report is too
// old, or 0 if there is none.
func SetServed(names []string, entries *[]v1alpha1.RegisteredInitializerStatus, generation int64, now time.Time) (next time.Duration) {
	for _, name := range names {
		entry := helper.ReportOf(*entries, name)
		if entry == nil {
			*entries = append(*entries, v1alpha1.RegisteredInitializerStatus{Name: name})
			entry = &(*entries)[len(*entries)-1]
		}
		condition := metav1.Condition{Type: v1alpha1.ConditionServed, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: generation}
		if entry.ReportTime == nil {
			condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNeverReported
			condition.Message = "no program has reported that it serves the initializer"
			meta.SetStatusCondition(&entry.Conditions, condition)
			continue
		}
		left := entry.ReportTime.Add(timing.ReportOverdue).Sub(now)
		if left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonReportOverdue
		condition.Message = fmt.Sprintf("user %q last reported at %s: check its program", entry.Reporter, entry.ReportTime.UTC().Format(time.RFC3339))
		meta.SetStatusCondition(&entry.Conditions, condition)
	}
	return next
}
