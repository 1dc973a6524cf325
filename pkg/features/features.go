/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package features names the feature gates of nsinit-apiserver. They belong to the
// component nsinit, so a flag reads --feature-gates=nsinit:FailPolicyOnCreate=true.
package features

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// FailPolicyOnCreate allows failurePolicy Fail for an initializer that is new to a configuration.
// Otherwise, a new initializer has Ignore or no policy, so that no namespace fails before it runs. A
// later update can set Fail.
const FailPolicyOnCreate featuregate.Feature = "FailPolicyOnCreate"

// Add registers the features of nsinit with a gate.
func Add(gate featuregate.MutableVersionedFeatureGate) error {
	return gate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		FailPolicyOnCreate: {
			{Version: version.MustParse("0.1"), Default: false, PreRelease: featuregate.Alpha},
		},
	})
}
