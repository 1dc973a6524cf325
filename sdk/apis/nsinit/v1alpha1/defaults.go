/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

func addDefaultingFuncs(scheme *runtime.Scheme) error {
	return RegisterDefaults(scheme)
}

// SetDefaults_NamespacePopulationSpec gives a population its scope. It sets no rollout, so that its author can change the
// scope back without removing a field that only the server set.
func SetDefaults_NamespacePopulationSpec(obj *NamespacePopulationSpec) {
	if obj.Scope == "" {
		obj.Scope = ScopeNew
	}
}

// SetDefaults_PopulationManifest gives a manifest its policies.
func SetDefaults_PopulationManifest(obj *PopulationManifest) {
	if obj.DriftPolicy == "" {
		obj.DriftPolicy = DriftIgnore
	}
	if obj.PrunePolicy == "" {
		obj.PrunePolicy = PruneDelete
	}
}

// SetDefaults_PopulationNamespaceMetadata gives the metadata of namespaces its policy.
func SetDefaults_PopulationNamespaceMetadata(obj *PopulationNamespaceMetadata) {
	if obj.DriftPolicy == "" {
		obj.DriftPolicy = DriftIgnore
	}
}

// SetDefaults_RegisteredInitializer gives an initializer with a failurePolicy its
// default deadline. Without a failurePolicy there is no deadline to default.
func SetDefaults_RegisteredInitializer(obj *RegisteredInitializer) {
	if obj.FailurePolicy != nil && obj.TimeoutSeconds == nil {
		timeout := DefaultTimeoutSeconds
		obj.TimeoutSeconds = &timeout
	}
}

// SetDefaults_Initializer gives an initializer with a failurePolicy its default deadline.
func SetDefaults_Initializer(obj *Initializer) {
	if obj.FailurePolicy != nil && obj.TimeoutSeconds == nil {
		obj.TimeoutSeconds = new(DefaultTimeoutSeconds)
	}
}
