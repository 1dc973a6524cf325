/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// pendingOn returns the UIDs of the configurations for whose initializers a lifecycle waits.
func pendingOn(object any) ([]string, error) {
	lifecycle, ok := object.(*v1alpha1.NamespaceLifecycle)
	if !ok {
		return nil, nil
	}
	pending, uids := helper.Pending(lifecycle), sets.New[string]()
	for _, planned := range lifecycle.Spec.Plan {
		if planned.Configuration != nil && slices.Contains(pending, planned.Name) {
			uids.Insert(string(planned.Configuration.UID))
		}
	}
	return uids.UnsortedList(), nil
}

// namesAccepted returns the condition NamesAccepted of a configuration.
func namesAccepted(configuration *v1alpha1.NamespaceInitializerConfiguration, all []*v1alpha1.NamespaceInitializerConfiguration) metav1.Condition {
	var items []v1alpha1.NamespaceInitializerConfiguration
	for _, c := range all {
		items = append(items, *c)
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionNamesAccepted, Status: metav1.ConditionTrue, Reason: reasonNoConflicts,
		Message: "every initializer of this configuration has an effect", ObservedGeneration: configuration.Generation}
	if ineffective := plan.Ineffective(configuration, items); len(ineffective) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonNameTaken, strings.Join(ineffective, "; ")
	}
	return condition
}

// withStatus returns a copy with the status that follows from all configurations and the number of
// pending namespaces, or nil if the status is up to date. It also returns the time until the next report is overdue, or 0.
func withStatus(configuration *v1alpha1.NamespaceInitializerConfiguration, all []*v1alpha1.NamespaceInitializerConfiguration, pending int,
	now time.Time) (*v1alpha1.NamespaceInitializerConfiguration, time.Duration) {
	updated := configuration.DeepCopy()
	updated.Status.PendingNamespaces = int32(pending) //nolint:gosec // a count of namespaces
	var names []string
	for _, initializer := range updated.Initializers {
		names = append(names, initializer.Name)
	}
	overdue := SetServed(names, &updated.Status.Initializers, updated.Generation, now)
	if configuration.DeletionTimestamp == nil {
		condition := namesAccepted(configuration, all)
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&updated.Status.Conditions, condition)
		setReady(updated, now)
	} else {
		condition := metav1.Condition{
			Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, ObservedGeneration: configuration.Generation,
			Reason:             reasonDraining,
			Message:            fmt.Sprintf("draining: a NamespaceLifecycle whose creation began before the deletion can still get this configuration; nsinit releases it %s after it saw the deletion", timing.DrainPeriod),
			LastTransitionTime: metav1.NewTime(now),
		}
		if pending > 0 {
			condition.Reason = reasonNamespacesPending
			wait := fmt.Sprintf("%d namespaces wait", pending)
			if pending == 1 {
				wait = "1 namespace waits"
			}
			condition.Message = wait + " for an initializer of this configuration: wait until it is done, or run kubectl nsinit skip NAMESPACE INITIALIZER (kubectl nsinit status lists the namespaces)"
		}
		meta.SetStatusCondition(&updated.Status.Conditions, condition)
	}
	if equality.Semantic.DeepEqual(configuration.Status, updated.Status) {
		return nil, overdue
	}
	return updated, overdue
}
