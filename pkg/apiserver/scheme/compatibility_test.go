/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package scheme

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestCompatibility compares the encodings of every stored kind with the files in testdata: what
// an earlier version stored must be read, and what this one stores must not change
// unseen. To write the files of a new kind or version, run the test with
// UPDATE_COMPATIBILITY_FIXTURE_DATA=true. With a release, copy HEAD to a folder of its version: that
// stays as it is.
func TestCompatibility(t *testing.T) {
	scheme := runtime.NewScheme()
	install(scheme)
	options := roundtrip.NewCompatibilityTestOptions(scheme)
	for _, kind := range []string{"InitializerConfiguration", "NamespaceInitializerConfiguration", "NamespaceLifecycle", "NamespacePopulation", "PopulatedNamespace"} {
		options.Kinds = append(options.Kinds, schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: kind})
	}
	options.Complete(t).Run(t)
}
