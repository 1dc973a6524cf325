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

// SetDefaults_RegisteredInitializer gives an initializer with a failurePolicy its
// default deadline. Without a failurePolicy there is no deadline to default.
func SetDefaults_RegisteredInitializer(obj *RegisteredInitializer) {
	if obj.FailurePolicy != nil && obj.TimeoutSeconds == nil {
		timeout := DefaultTimeoutSeconds
		obj.TimeoutSeconds = &timeout
	}
}
