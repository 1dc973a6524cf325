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
	"github.com/nsinit/nsinit/pkg/plan/order"
)

// versioned returns a NamespaceLifecycle as clients see it. The lists are those of the original.
func versioned(lifecycle *nsinit.NamespaceLifecycle) (out v1alpha1.NamespaceLifecycle) {
	_ = v1alpha1.Convert_nsinit_NamespaceLifecycle_To_v1alpha1_NamespaceLifecycle(lifecycle, &out, nil) // it has no error
	return out
}

// Pending returns the names of the initializers that have not acted, in the order of the plan.
func Pending(lifecycle *nsinit.NamespaceLifecycle) []string {
	v := versioned(lifecycle)
	return helper.Pending(&v)
}

// Failure returns the result that ended the initialization, or nil.
func Failure(lifecycle *nsinit.NamespaceLifecycle) *metav1.Status {
	v := versioned(lifecycle)
	return helper.Failure(&v)
}

// FailedInitializer returns the name of the initializer that ended the initialization, or "".
func FailedInitializer(lifecycle *nsinit.NamespaceLifecycle) string {
	v := versioned(lifecycle)
	return helper.FailedInitializer(&v)
}

// CurrentInitializers returns the names of the initializers that have their turn, in the order of the plan. Whether the
// initialization has failed does not matter.
func CurrentInitializers(lifecycle *nsinit.NamespaceLifecycle) []string {
	v := versioned(lifecycle)
	return helper.CurrentInitializers(&v)
}

// Predecessors returns the names of the initializers of the plan that must finish before one acts.
func Predecessors(lifecycle *nsinit.NamespaceLifecycle, name string) []string {
	v := versioned(lifecycle)
	return helper.Predecessors(&v, name)
}

// Participants returns the names of the participants that have not cleaned up.
func Participants(lifecycle *nsinit.NamespaceLifecycle) []string {
	v := versioned(lifecycle)
	return helper.Participants(&v)
}

// OrderOf returns the place of an initializer in the order of a plan.
func OrderOf(initializer *nsinit.RegisteredInitializer) order.Entry {
	out := &v1alpha1.RegisteredInitializer{}
	_ = v1alpha1.Convert_nsinit_RegisteredInitializer_To_v1alpha1_RegisteredInitializer(initializer, out, nil) // it has no error
	return helper.OrderOf(out)
}

// Planned returns the plan's entry of an initializer, or nil.
func Planned(lifecycle *nsinit.NamespaceLifecycle, name string) *nsinit.PlannedInitializer {
	return find(lifecycle.Spec.Plan, func(p *nsinit.PlannedInitializer) bool { return p.Name == name })
}

// Entry returns the status of an initializer, or nil.
func Entry(lifecycle *nsinit.NamespaceLifecycle, name string) *nsinit.InitializerStatus {
	return find(lifecycle.Status.Initializers, func(s *nsinit.InitializerStatus) bool { return s.Name == name })
}

// RegistrationStatus returns the status of an initializer of a configuration, or nil.
func RegistrationStatus(configuration *nsinit.NamespaceInitializerConfiguration, name string) *nsinit.RegisteredInitializerStatus {
	return find(configuration.Status.Initializers, func(s *nsinit.RegisteredInitializerStatus) bool { return s.Name == name })
}

// find returns the first element of a list for which is returns true, or nil.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
