/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package helper answers what the API server asks of NamespaceLifecycles, as the package of the same name next to v1alpha1 does for
// clients.
package helper

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// versioned returns a NamespaceLifecycle as clients see it. Its lists are those of the original.
func versioned(lifecycle *nsinit.NamespaceLifecycle) *v1alpha1.NamespaceLifecycle {
	return &v1alpha1.NamespaceLifecycle{ObjectMeta: lifecycle.ObjectMeta, Spec: lifecycle.Spec, Status: lifecycle.Status}
}

// Pending returns the names of the initializers that have not acted, in the order of the plan.
func Pending(lifecycle *nsinit.NamespaceLifecycle) []string {
	return helper.Pending(versioned(lifecycle))
}

// Failure returns the result that ended the initialization, or nil.
func Failure(lifecycle *nsinit.NamespaceLifecycle) *metav1.Status {
	return helper.Failure(versioned(lifecycle))
}

// FailedInitializer returns the name of the initializer that ended the initialization, or "".
func FailedInitializer(lifecycle *nsinit.NamespaceLifecycle) string {
	return helper.FailedInitializer(versioned(lifecycle))
}

// CurrentInitializers returns the names of the initializers that have their turn, in the order of the plan. Whether the
// initialization has failed does not matter.
func CurrentInitializers(lifecycle *nsinit.NamespaceLifecycle) []string {
	return helper.CurrentInitializers(versioned(lifecycle))
}

// Predecessors returns the names of the initializers of the plan that must finish before one acts.
func Predecessors(lifecycle *nsinit.NamespaceLifecycle, name string) []string {
	return helper.Predecessors(versioned(lifecycle), name)
}

// Participants returns the names of the participants that have not cleaned up.
func Participants(lifecycle *nsinit.NamespaceLifecycle) []string {
	return helper.Participants(versioned(lifecycle))
}

// Planned returns the plan's entry of an initializer, or nil.
func Planned(lifecycle *nsinit.NamespaceLifecycle, name string) *v1alpha1.PlannedInitializer {
	return helper.Planned(versioned(lifecycle), name)
}

// Entry returns the status of an initializer, or nil.
func Entry(lifecycle *nsinit.NamespaceLifecycle, name string) *v1alpha1.InitializerStatus {
	return helper.Entry(versioned(lifecycle), name)
}

// RegistrationStatus returns the status of an initializer of a configuration, or nil.
func RegistrationStatus(configuration *nsinit.NamespaceInitializerConfiguration, name string) *v1alpha1.RegisteredInitializerStatus {
	return helper.RegistrationStatus(&v1alpha1.NamespaceInitializerConfiguration{Status: configuration.Status}, name)
}
