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

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/expressions"
)

// Source provides the current configurations.
type Source interface {
	// Configurations returns all configurations at one revision that is not older than the beginning of the
	// call, in no particular order. Callers must not change the result, which they share. On an error, no
	// lifecycle may be created, because its plan could lack initializers.
	Configurations(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
}

// Plan is the plan of one namespace, and how it came about.
type Plan struct {
	// Entries are the initializers that act on the namespace.
	Entries []v1alpha1.PlannedInitializer
	// LeftOut are the other registered initializers, in the order of the configurations.
	LeftOut []LeftOut
	// Degradations are the differences between the plan and what the configurations say.
	Degradations []Degradation
}

// Merger makes plans. Its methods can be called concurrently.
type Merger struct{ conditions *expressions.Selection }

// NewMerger returns a Merger.
func NewMerger() *Merger { return &Merger{expressions.NewSelection()} }

// Merge merges configurations into the plan of a namespace, which has its current labels and the annotations of its
// creator. It sorts the configurations by name, and keeps the order of the entries in each. Configurations that are being
// deleted, and entries that are not active or do not select the namespace, are left out. Of the remaining entries with the
// same name, the first is used. If one of them is a participant, the built-in initializer is the first entry of the plan. The
// order of the entries has no cycle.
func (m *Merger) Merge(configurations []v1alpha1.NamespaceInitializerConfiguration, namespace *corev1.Namespace) *Plan {
	plan := &Plan{}
	selection := &selection{conditions: m.conditions, namespace: namespace, left: budget}
	registeredBy := map[string]string{}
	finalizers := false
	for _, configuration := range sorted(configurations) {
		for i := range configuration.Initializers {
			initializer := &configuration.Initializers[i]
			var reason Reason
			var message string
			var failures []string
			switch by, taken := registeredBy[initializer.Name]; {
			case configuration.DeletionTimestamp != nil:
				reason, message = ConfigurationDeleted, fmt.Sprintf("configuration %q is being deleted", configuration.Name)
			case taken:
				reason, message = NameTaken, fmt.Sprintf("configuration %q registers it first", by)
			case !helper.IsInPlans(&configuration, initializer):
				reason, message = NotServed, fmt.Sprintf("activation is %s, and no program has reported that it serves the initializer", v1alpha1.ActivationWhenServed)
			default:
				reason, message, failures = selection.exclude(initializer)
			}
			if reason != "" {
				plan.LeftOut = append(plan.LeftOut, LeftOut{initializer.Name, configuration.Name, reason, message})
				continue
			}
			for _, failure := range failures {
				plan.Degradations = append(plan.Degradations, expressionFailed(configuration.Name, initializer.Name, failure))
			}
			registeredBy[initializer.Name] = configuration.Name
			plan.Entries = append(plan.Entries, planned(&configuration, initializer))
			finalizers = finalizers || initializer.Finalizer
		}
	}
	if finalizers {
		plan.Entries = slices.Insert(plan.Entries, 0, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}})
	}
	plan.breakCycles()
	return plan
}

// sorted returns configurations in the order of their names.
func sorted(configurations []v1alpha1.NamespaceInitializerConfiguration) []v1alpha1.NamespaceInitializerConfiguration {
	return slices.SortedFunc(slices.Values(configurations), func(a, b v1alpha1.NamespaceInitializerConfiguration) int { return cmp.Compare(a.Name, b.Name) })
}

// planned returns the entry of a plan for an initializer. The entry has no selection, which was evaluated.
func planned(configuration *v1alpha1.NamespaceInitializerConfiguration, initializer *v1alpha1.RegisteredInitializer) v1alpha1.PlannedInitializer {
	entry := v1alpha1.PlannedInitializer{
		RegisteredInitializer: *initializer.DeepCopy(),
		Configuration:         &v1alpha1.ConfigurationReference{Name: configuration.Name, UID: configuration.UID},
	}
	entry.MatchConditions, entry.NamespaceSelector = nil, nil
	return entry
}

// Ineffective returns a message for each initializer of a configuration that has no effect on any namespace, because an
// earlier configuration registers its name for all namespaces. The list of all configurations may include an older version
// of the given one.
func Ineffective(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) []string {
	first := map[string]string{}
	for _, other := range sorted(all) {
		if other.DeletionTimestamp != nil || other.Name >= configuration.Name {
			continue
		}
		for i := range other.Initializers {
			entry := &other.Initializers[i]
			if _, found := first[entry.Name]; !found && helper.IsInPlans(&other, entry) && selectsAll(entry) {
				first[entry.Name] = other.Name
			}
		}
	}
	var messages []string
	for i, initializer := range configuration.Initializers {
		if by, found := first[initializer.Name]; found {
			messages = append(messages, fmt.Sprintf("initializers[%d] %q has no effect because configuration %q registers it first: remove or rename it",
				i, initializer.Name, by))
		}
	}
	return messages
}
