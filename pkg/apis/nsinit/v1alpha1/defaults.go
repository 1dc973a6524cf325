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

// SetDefaults_PopulationManifest gives a manifest its policies.
func SetDefaults_PopulationManifest(obj *PopulationManifest) {
	if obj.DriftPolicy == "" {
		obj.DriftPolicy = DriftIgnore
	}
	if obj.PrunePolicy == "" {
		obj.PrunePolicy = PruneDelete
	}
}

// SetDefaults_NamespaceInitializers moves the start of the turn to the entry of the initializer. Versions in which
// one initializer acted at a time stored it outside.
func SetDefaults_NamespaceInitializers(obj *NamespaceInitializers) {
	if obj.TurnStartTime != nil && len(obj.Pending) > 0 && obj.Pending[0].TurnStartTime == nil {
		obj.Pending[0].TurnStartTime = obj.TurnStartTime
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
