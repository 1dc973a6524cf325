/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/order"
)

// breakCycles lets initializers of the plan that wait for each other act in the order of the plan. A single configuration
// has no cycle, and ValidateOrder refuses most cycles of several.
func (p *Plan) breakCycles() {
	var entries []order.Entry
	for i := range p.Entries {
		entries = append(entries, helper.OrderOf(&p.Entries[i].RegisteredInitializer))
	}
	acyclic, names := order.WithoutCycles(entries)
	if len(names) == 0 {
		return
	}
	for i := range p.Entries {
		if p.Entries[i].Ordering != nil {
			p.Entries[i].Ordering.After = acyclic[i].After
		}
	}
	p.Degradations = append(p.Degradations, Degradation{v1alpha1.ReasonCycle, fmt.Sprintf("%s; in this namespace, %q act in the order of the plan: correct ordering in their configurations",
		order.Explain(entries, order.Cycle(entries)), names)})
}

// UnknownPredecessors returns a message for each initializer that a configuration names in ordering.after and that no
// configuration registers. The list of all configurations may include an older version of the given one.
func UnknownPredecessors(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) []string {
	known := []string{v1alpha1.InitializerLifecycle}
	for _, other := range replaced(configuration, all) {
		if other.DeletionTimestamp != nil {
			continue
		}
		for _, initializer := range other.Initializers {
			known = append(known, initializer.Name)
		}
	}
	var messages []string
	for i, initializer := range configuration.Initializers {
		if initializer.Ordering == nil {
			continue
		}
		for j, name := range initializer.Ordering.After {
			if !slices.Contains(known, name) {
				messages = append(messages, fmt.Sprintf("initializers[%d].ordering.after[%d]: no configuration registers %q, so it has no effect: check the name", i, j, name))
			}
		}
	}
	return messages
}

// ValidateOrder refuses a configuration with which initializers of several configurations begin to wait for each other. The
// list of all configurations may include an older version of the given one.
func ValidateOrder(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) field.ErrorList {
	_, before := order.WithoutCycles(everywhere(all))
	entries := everywhere(replaced(configuration, all))
	_, after := order.WithoutCycles(entries)
	if !slices.ContainsFunc(after, func(name string) bool { return !slices.Contains(before, name) }) {
		return nil
	}
	cycle := order.Cycle(slices.DeleteFunc(slices.Clone(entries), func(e order.Entry) bool { return slices.Contains(before, e.Name) }))
	if cycle == nil {
		cycle = order.Cycle(entries)
	}
	problem := order.Explain(entries, cycle) + ": remove one of these names, or set ordering of an initializer that has none"
	path := field.NewPath("initializers")
	for i, initializer := range configuration.Initializers {
		if slices.Contains(cycle, initializer.Name) && initializer.Ordering != nil {
			return field.ErrorList{field.Invalid(path.Index(i).Child("ordering", "after"), initializer.Ordering.After, problem)}
		}
	}
	for i, initializer := range configuration.Initializers {
		if slices.Contains(cycle, initializer.Name) {
			return field.ErrorList{field.Invalid(path.Index(i).Child("ordering"), nil, problem)}
		}
	}
	return field.ErrorList{field.Invalid(path, configuration.Name, problem)}
}

// everywhere returns the order of a plan with all initializers, whichever namespaces they select. Of several with the same
// name, it has the first. Configurations that are being deleted are ignored.
func everywhere(configurations []v1alpha1.NamespaceInitializerConfiguration) (entries []order.Entry) {
	for _, configuration := range sorted(configurations) {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		for i := range configuration.Initializers {
			entry := helper.OrderOf(&configuration.Initializers[i])
			if !slices.ContainsFunc(entries, func(e order.Entry) bool { return e.Name == entry.Name }) {
				entries = append(entries, entry)
			}
		}
	}
	return entries
}

// replaced returns all configurations, with the given version of one of them.
func replaced(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) []v1alpha1.NamespaceInitializerConfiguration {
	return append(slices.DeleteFunc(slices.Clone(all), func(c v1alpha1.NamespaceInitializerConfiguration) bool { return c.Name == configuration.Name }), *configuration)
}
