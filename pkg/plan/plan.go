/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package plan merges configurations into the plan of a namespace, and checks what they do to plans.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// maxSize bounds, in bytes, what the initializers of one namespace can take in its NamespaceLifecycle. A namespace gets all
	// if every selection fails. etcd stores 1.5 MiB: two configurations that are written at the same moment can exceed the bound.
	maxSize = 1 << 20
	// entrySize is what one takes besides its entry in the plan: its longest message, and its name in other lists.
	entrySize = 6 << 10
)

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
// same name, the first is used. An entry whose selection failed counts as selected, but does not keep a later entry out of the
// plan: the later one is used, and is as strict as both. If one entry is a participant, the built-in initializer is the first
// entry of the plan. The order of the entries has no cycle.
func (m *Merger) Merge(configurations []v1alpha1.NamespaceInitializerConfiguration, namespace *corev1.Namespace) *Plan {
	plan := &Plan{}
	selection := &selection{conditions: m.conditions, namespace: namespace, left: budget}
	registered := map[string]*candidate{}
	var candidates []*candidate
	for _, configuration := range sorted(configurations) {
		for i := range configuration.Initializers {
			c := &candidate{PlannedInitializer: planned(&configuration, &configuration.Initializers[i])}
			c.exclude(&configuration, &configuration.Initializers[i], registered[c.Name], selection)
			candidates = append(candidates, c)
			if c.reason != "" {
				continue
			}
			for _, failure := range c.failures {
				plan.Degradations = append(plan.Degradations, expressionFailed(configuration.Name, c.Name, failure))
			}
			switch other := registered[c.Name]; {
			case other == nil:
				registered[c.Name] = c
			case len(c.failures) > 0: // other failed, too
				other.absorb(c)
			default:
				c.absorb(other)
				registered[c.Name] = c
			}
		}
	}
	for _, c := range candidates {
		if used := registered[c.Name]; c.reason == "" && used != c {
			c.reason, c.message = NameTaken, fmt.Sprintf("an expression failed, so the entry of configuration %q is in the plan, as strict as both", used.Configuration.Name)
		}
		if c.reason == "" {
			plan.Entries = append(plan.Entries, c.PlannedInitializer)
		} else {
			plan.LeftOut = append(plan.LeftOut, LeftOut{c.Name, c.Configuration.Name, c.reason, c.message})
		}
	}
	if slices.ContainsFunc(plan.Entries, func(p v1alpha1.PlannedInitializer) bool { return p.Finalizer }) {
		plan.Entries = slices.Insert(plan.Entries, 0, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}})
	}
	plan.breakCycles()
	return plan
}

// candidate is an entry of a configuration, and why it is not in the plan, if so.
type candidate struct {
	v1alpha1.PlannedInitializer
	reason   Reason
	message  string
	failures []string // of its selection
}

// exclude decides whether the candidate is not in the plan. The former candidate with the name may be nil.
func (c *candidate) exclude(configuration *v1alpha1.NamespaceInitializerConfiguration, initializer *v1alpha1.RegisteredInitializer, former *candidate, selection *selection) {
	switch {
	case configuration.DeletionTimestamp != nil:
		c.reason, c.message = ConfigurationDeleted, fmt.Sprintf("configuration %q is being deleted", configuration.Name)
	case former != nil && len(former.failures) == 0:
		c.reason, c.message = NameTaken, fmt.Sprintf("configuration %q registers it first", former.Configuration.Name)
	case !helper.IsInPlans(configuration, initializer):
		c.reason, c.message = NotServed, fmt.Sprintf("activation is %s, and no program has reported that it serves the initializer", v1alpha1.ActivationWhenServed)
	default:
		c.reason, c.message, c.failures = selection.exclude(initializer)
	}
}

// absorb replaces another candidate with the name. The selection of one of them failed, so both may be meant: the result keeps
// the namespace closed as long as each would, and is a participant if one is.
func (c *candidate) absorb(other *candidate) {
	if patience(&other.RegisteredInitializer) > patience(&c.RegisteredInitializer) {
		c.FailurePolicy, c.TimeoutSeconds = other.FailurePolicy, other.TimeoutSeconds
	}
	c.Finalizer, c.Holds = c.Finalizer || other.Finalizer, cmp.Or(c.Holds, other.Holds)
}

// patience orders failure policies: Ignore, Fail, none. Of the same ones, the longer deadline is the greater.
func patience(initializer *v1alpha1.RegisteredInitializer) int64 {
	if initializer.FailurePolicy == nil {
		return math.MaxInt64
	}
	seconds := int64(ptr.Deref(initializer.TimeoutSeconds, v1alpha1.DefaultTimeoutSeconds))
	if *initializer.FailurePolicy == v1alpha1.Fail {
		seconds += math.MaxInt32
	}
	return seconds
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

// ValidateSize refuses a configuration with which the NamespaceLifecycle of a namespace can become too large to store, unless
// it could before. The list of all configurations may include an older version of the given one.
func ValidateSize(configuration *v1alpha1.NamespaceInitializerConfiguration, all []v1alpha1.NamespaceInitializerConfiguration) field.ErrorList {
	_, before := size(all)
	count, after := size(replaced(configuration, all))
	if after <= max(before, maxSize) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("initializers"), fmt.Sprintf("%d initializers", len(configuration.Initializers)),
		fmt.Sprintf("with those of all configurations, a namespace can get %d initializers, which take %d bytes, and may take %d: remove initializers, or names in ordering.after", count, after, maxSize))}
}

// size returns how many initializers a namespace can get, and how many bytes they take. Of several entries with the same name,
// the largest counts. Configurations that are being deleted are ignored.
func size(configurations []v1alpha1.NamespaceInitializerConfiguration) (count, bytes int) {
	sizes := map[string]int{}
	for _, configuration := range configurations {
		for i := range configuration.Initializers {
			if entry := planned(&configuration, &configuration.Initializers[i]); configuration.DeletionTimestamp == nil {
				bytes -= sizes[entry.Name]
				sizes[entry.Name] = max(sizes[entry.Name], entry.Size()+entrySize)
				bytes += sizes[entry.Name]
			}
		}
	}
	return len(sizes), bytes
}
