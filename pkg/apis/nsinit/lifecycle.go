/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// versioned returns a NamespaceLifecycle as clients see it. Its lists are those of the original.
func (l *NamespaceLifecycle) versioned() *v1alpha1.NamespaceLifecycle {
	return &v1alpha1.NamespaceLifecycle{ObjectMeta: l.ObjectMeta, Spec: l.Spec, Status: l.Status}
}

// Pending returns the names of the initializers that have not acted, in the order of the plan.
func (l *NamespaceLifecycle) Pending() []string { return helper.Pending(l.versioned()) }

// Failure returns the result that ended the initialization, or nil.
func (l *NamespaceLifecycle) Failure() *metav1.Status { return helper.Failure(l.versioned()) }

// FailedInitializer returns the name of the initializer that ended the initialization, or "".
func (l *NamespaceLifecycle) FailedInitializer() string {
	return helper.FailedInitializer(l.versioned())
}

// CurrentInitializers returns the names of the initializers that have their turn, in the order of the plan. Whether the
// initialization has failed does not matter.
func (l *NamespaceLifecycle) CurrentInitializers() []string {
	return helper.CurrentInitializers(l.versioned())
}

// Predecessors returns the names of the initializers of the plan that must finish before one acts.
func (l *NamespaceLifecycle) Predecessors(name string) []string {
	return helper.Predecessors(l.versioned(), name)
}

// Participants returns the names of the participants that have not cleaned up.
func (l *NamespaceLifecycle) Participants() []string { return helper.Participants(l.versioned()) }

// Planned returns the plan's entry of an initializer, or nil.
func (l *NamespaceLifecycle) Planned(name string) *v1alpha1.PlannedInitializer {
	return helper.Planned(l.versioned(), name)
}

// Entry returns the status of an initializer, or nil.
func (l *NamespaceLifecycle) Entry(name string) *v1alpha1.InitializerStatus {
	return helper.Entry(l.versioned(), name)
}
