/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package helper

import (
	"fmt"
	"slices"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Ineffective describes each initializer of a configuration that has no effect, because another configuration
// registers its name first.
func Ineffective(configuration *v1alpha1.NamespaceInitializerConfiguration, all []*v1alpha1.NamespaceInitializerConfiguration) []string {
	var messages []string
	for i, initializer := range configuration.Initializers {
		if other := registrant(initializer.Name, configuration, all); other != nil {
			messages = append(messages, fmt.Sprintf("initializers[%d] %q has no effect because configuration %q registers it first: remove or rename it",
				i, initializer.Name, other.Name))
		}
	}
	return messages
}

// registrant returns the configuration that registers a name instead of the given one: the first one in the order of
// names, unless it is being deleted or comes after the given one. Or nil.
func registrant(name string, configuration *v1alpha1.NamespaceInitializerConfiguration, all []*v1alpha1.NamespaceInitializerConfiguration) *v1alpha1.NamespaceInitializerConfiguration {
	var first *v1alpha1.NamespaceInitializerConfiguration
	for _, other := range all {
		if other.Name < configuration.Name && other.DeletionTimestamp == nil && (first == nil || other.Name < first.Name) &&
			slices.ContainsFunc(other.Initializers, func(r v1alpha1.RegisteredInitializer) bool { return r.Name == name }) {
			first = other
		}
	}
	return first
}
