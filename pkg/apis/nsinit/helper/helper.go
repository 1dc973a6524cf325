/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package helper answers what the API server asks of NamespaceLifecycles. The package of the same name next to
// v1alpha1 has the answers for clients.
package helper

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/order"
)

// Pending returns the names of the initializers that have not acted, in the order of the plan.
func Pending(lifecycle *nsinit.NamespaceLifecycle) []string {
	if lifecycle.Spec.Initializers == nil {
		return nil
	}
	names := make([]string, 0, len(lifecycle.Spec.Initializers.Pending))
	for _, entry := range lifecycle.Spec.Initializers.Pending {
		names = append(names, entry.Name)
	}
	return names
}

// Failure returns the result that ended the initialization, or nil.
func Failure(lifecycle *nsinit.NamespaceLifecycle) *metav1.Status {
	initializers := lifecycle.Spec.Initializers
	if initializers == nil || initializers.Result == nil || initializers.Result.Status != metav1.StatusFailure || len(initializers.Pending) == 0 {
		return nil
	}
	return initializers.Result
}

// CurrentInitializers returns the names of the initializers that have their turn, in the order of the plan. Whether the
// initialization has failed does not matter.
func CurrentInitializers(lifecycle *nsinit.NamespaceLifecycle) []string {
	return order.Current(planOrder(lifecycle), Pending(lifecycle))
}

// Predecessors returns the names of the initializers of the plan that must finish before one acts.
func Predecessors(lifecycle *nsinit.NamespaceLifecycle, name string) []string {
	return order.Predecessors(planOrder(lifecycle), name)
}

func planOrder(lifecycle *nsinit.NamespaceLifecycle) []order.Entry {
	entries := make([]order.Entry, 0, len(lifecycle.Spec.Plan))
	for i := range lifecycle.Spec.Plan {
		entries = append(entries, OrderOf(&lifecycle.Spec.Plan[i].RegisteredInitializer))
	}
	return entries
}

// OrderOf returns the place of an initializer in the order of a plan.
func OrderOf(initializer *nsinit.RegisteredInitializer) order.Entry {
	entry := order.Entry{Name: initializer.Name, First: initializer.Name == v1alpha1.InitializerLifecycle}
	if initializer.Ordering != nil {
		entry.Ordered, entry.After = true, initializer.Ordering.After
	}
	return entry
}

// FailedInitializer returns the name of the initializer that ended the initialization, or "".
func FailedInitializer(lifecycle *nsinit.NamespaceLifecycle) string {
	if Failure(lifecycle) == nil {
		return ""
	}
	return lifecycle.Spec.Initializers.FailedInitializer
}

// Planned returns the plan's entry of an initializer, or nil.
func Planned(lifecycle *nsinit.NamespaceLifecycle, name string) *nsinit.PlannedInitializer {
	i := slices.IndexFunc(lifecycle.Spec.Plan, func(p nsinit.PlannedInitializer) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &lifecycle.Spec.Plan[i]
}

// Entry returns the status of an initializer, or nil.
func Entry(lifecycle *nsinit.NamespaceLifecycle, name string) *nsinit.InitializerStatus {
	i := slices.IndexFunc(lifecycle.Status.Initializers, func(s nsinit.InitializerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &lifecycle.Status.Initializers[i]
}

// Participants returns the names of the participants that have not cleaned up.
func Participants(lifecycle *nsinit.NamespaceLifecycle) []string {
	var names []string
	for _, finalizer := range lifecycle.Spec.Finalizers {
		if finalizer != nsinit.FinalizerKubernetes {
			names = append(names, string(finalizer))
		}
	}
	return names
}

// RegistrationStatus returns the status of an initializer of a configuration, or nil.
func RegistrationStatus(configuration *nsinit.NamespaceInitializerConfiguration, name string) *nsinit.RegisteredInitializerStatus {
	i := slices.IndexFunc(configuration.Status.Initializers, func(s nsinit.RegisteredInitializerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &configuration.Status.Initializers[i]
}
