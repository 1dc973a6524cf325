/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializer hands admission plugins what they ask for by implementing a WantsX
// interface.
package initializer

import (
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/admission/configuration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/authority"
)

// WantsConfigurationSource is implemented by plugins that need the configurations.
type WantsConfigurationSource interface {
	SetConfigurationSource(configuration.Source)
	admission.InitializationValidator
}

// WantsAuthority is implemented by plugins that ask who holds nsinit's own verbs.
type WantsAuthority interface {
	SetAuthority(*authority.Checker)
	admission.InitializationValidator
}

type pluginInitializer struct {
	source  configuration.Source
	checker *authority.Checker
}

// New returns the initializer of nsinit's plugins.
func New(source configuration.Source, checker *authority.Checker) admission.PluginInitializer {
	return &pluginInitializer{source: source, checker: checker}
}

// Initialize implements admission.PluginInitializer.
func (i *pluginInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(WantsConfigurationSource); ok {
		wants.SetConfigurationSource(i.source)
	}
	if wants, ok := plugin.(WantsAuthority); ok {
		wants.SetAuthority(i.checker)
	}
}
