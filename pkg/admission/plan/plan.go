/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package plan provides the configurations that are in force to admission, and
// merges them into one plan.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Source knows the configurations that are in force.
type Source interface {
	// Configurations returns one committed state of all configurations, never a
	// mixture of two, in no particular order. Callers must not change what it
	// returns. It fails when that state may be older than timing.MaxListAge, and then no record
	// may be created: a namespace that is not initialized because nobody could read
	// what initializes it would open empty.
	Configurations() ([]v1alpha1.NamespaceInitializerConfiguration, error)
	// List reads all configurations, including those that were written last.
	List(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
}

// Merge makes one plan of configurations: they are sorted by name, the order within each is kept,
// the first of two entries of one name wins, and configurations that are being deleted
// contribute nothing. Where a participant acts at termination, too, the built-in
// initializer comes first.
func Merge(configurations []v1alpha1.NamespaceInitializerConfiguration) []v1alpha1.PlannedInitializer {
	sorted := slices.Clone(configurations)
	slices.SortFunc(sorted, func(a, b v1alpha1.NamespaceInitializerConfiguration) int { return cmp.Compare(a.Name, b.Name) })

	var plan []v1alpha1.PlannedInitializer
	finalizers := false
	for _, configuration := range sorted {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		for _, initializer := range configuration.Initializers {
			if slices.ContainsFunc(plan, func(p v1alpha1.PlannedInitializer) bool { return p.Name == initializer.Name }) {
				continue
			}
			plan = append(plan, v1alpha1.PlannedInitializer{
				RegisteredInitializer: *initializer.DeepCopy(),
				Configuration:         &v1alpha1.ConfigurationReference{Name: configuration.Name, UID: configuration.UID},
			})
			finalizers = finalizers || initializer.Finalizer
		}
	}
	if finalizers {
		plan = slices.Insert(plan, 0, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}})
	}
	return plan
}

// Ineffective describes each initializer of a configuration that has no effect because another configuration
// registers its name first. The list of all configurations may include an older state of the given one.
func Ineffective(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) []string {
	var messages []string
	plan := Merge(all)
	for i, initializer := range configuration.Initializers {
		for _, planned := range plan {
			if planned.Name == initializer.Name && planned.Configuration != nil && planned.Configuration.Name < configuration.Name {
				messages = append(messages, fmt.Sprintf("initializers[%d] %q has no effect because configuration %q registers it first: remove or rename it",
					i, initializer.Name, planned.Configuration.Name))
			}
		}
	}
	return messages
}
