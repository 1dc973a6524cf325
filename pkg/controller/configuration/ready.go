/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Reasons of the conditions Ready and Stalled.
const (
	reasonNameTaken = "NameTaken"
	reasonInForce   = "InForce"
)

// setReady derives the conditions Ready and Stalled from NamesAccepted and Served, and the generation that they
// describe. An initializer for which no program has ever reported does not make the configuration unready: a person can
// act as an initializer.
func setReady(configuration *v1alpha1.NamespaceInitializerConfiguration, now time.Time) {
	status := &configuration.Status
	accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNamesAccepted)
	if accepted == nil {
		return
	}
	status.ObservedGeneration = accepted.ObservedGeneration
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonInForce, ObservedGeneration: accepted.ObservedGeneration,
		Message: "every initializer acts on new namespaces that it selects", LastTransitionTime: metav1.NewTime(now)}
	for _, entry := range status.Initializers {
		if overdue := meta.FindStatusCondition(entry.Conditions, v1alpha1.ConditionServed); ready.Status == metav1.ConditionTrue && overdue != nil && overdue.Status == metav1.ConditionFalse {
			ready.Status, ready.Reason = metav1.ConditionFalse, overdue.Reason
			ready.Message = fmt.Sprintf("initializer %q: %s", entry.Name, overdue.Message)
		}
	}
	if accepted.Status == metav1.ConditionTrue {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
	} else {
		ready.Status, ready.Reason, ready.Message = accepted.Status, accepted.Reason, accepted.Message
		stalled := ready
		stalled.Type, stalled.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
		meta.SetStatusCondition(&status.Conditions, stalled)
	}
	meta.SetStatusCondition(&status.Conditions, ready)
}
