/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package plan provides the current configurations to admission, and merges them into one plan.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Source provides the current configurations.
type Source interface {
	// Configurations returns all configurations at one revision, in no particular order. Callers
	// must not change the result. It returns an error if the result may be older than
	// timing.MaxListAge. Then no lifecycle may be created, because its plan could lack initializers.
	Configurations() ([]v1alpha1.NamespaceInitializerConfiguration, error)
	// List reads the latest configurations.
	List(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
}

// Merge merges configurations into one plan. It sorts the configurations by name, and keeps the order
// of the entries in each. The first of several entries with the same name is used. Configurations that
// are being deleted are ignored. If an initializer is also a participant, the built-in initializer is
// the first entry.
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

// Ineffective returns a message for each initializer of a configuration that has no effect because another
// configuration registers its name first. The list of all configurations may include an older version of the
// given one.
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
