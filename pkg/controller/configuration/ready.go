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

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// reasonNameTaken: an earlier configuration registers an initializer of the same name for
	// all namespaces.
	reasonNameTaken = "NameTaken"
	// reasonNoConflicts: no earlier configuration registers the same name for all namespaces.
	reasonNoConflicts = "NoConflicts"
	// reasonInForce: every initializer acts on the new namespaces that it selects.
	reasonInForce = "InForce"
	// reasonDraining: nsinit waits a few seconds before it releases the deleted configuration.
	// If the creation of a NamespaceLifecycle began before the deletion, its plan can still
	// contain the initializers of the configuration.
	reasonDraining = "Draining"
	// reasonNamespacesPending: namespaces wait for an initializer of the configuration.
	reasonNamespacesPending = "NamespacesPending"
)

// setReady derives the conditions Ready and Stalled from NamesAccepted and Served, and the generation that they
// describe. An initializer for which no program has ever reported does not make the configuration unready, because a
// person can act as an initializer, unless its activation is WhenServed: then new namespaces open without it.
func setReady(configuration *v1alpha1.NamespaceInitializerConfiguration, now time.Time) {
	status := &configuration.Status
	accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNamesAccepted)
	if accepted == nil {
		return
	}
	status.ObservedGeneration = accepted.ObservedGeneration
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonInForce, ObservedGeneration: accepted.ObservedGeneration,
		Message: "every initializer acts on new namespaces that it selects", LastTransitionTime: metav1.NewTime(now)}
	for i := range configuration.Initializers {
		initializer := &configuration.Initializers[i]
		entry := helper.RegistrationStatus(configuration, initializer.Name)
		if entry == nil {
			continue
		}
		served := meta.FindStatusCondition(entry.Conditions, v1alpha1.ConditionServed)
		if served != nil && (served.Status == metav1.ConditionFalse || !helper.IsInPlans(configuration, initializer)) {
			ready.Status, ready.Reason = metav1.ConditionFalse, served.Reason
			ready.Message = fmt.Sprintf("initializer %q: %s", initializer.Name, served.Message)
			break
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
