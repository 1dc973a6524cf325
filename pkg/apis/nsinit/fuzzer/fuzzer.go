/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package fuzzer fills objects of the nsinit.dev group with random values that a server
// could have stored.
package fuzzer

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Funcs returns the fuzzing functions of the group. Defaults are applied, because a
// decoded object has them.
func Funcs(runtimeserializer.CodecFactory) []any {
	return []any{
		func(obj *v1alpha1.RegisteredInitializer, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetDefaults_RegisteredInitializer(obj)
		},
		func(obj *v1alpha1.Initializer, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetDefaults_Initializer(obj)
		},
		func(obj *v1alpha1.NamespacePopulationSpec, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetDefaults_NamespacePopulationSpec(obj)
		},
		func(obj *v1alpha1.PopulationManifest, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetDefaults_PopulationManifest(obj)
		},
		func(obj *v1alpha1.PopulationNamespaceMetadata, c randfill.Continue) {
			*obj = v1alpha1.PopulationNamespaceMetadata{Labels: map[string]string{c.String(0): c.String(0)}}
			v1alpha1.SetDefaults_PopulationNamespaceMetadata(obj)
		},
		// Templates are objects in JSON.
		func(obj *runtime.RawExtension, c randfill.Continue) {
			*obj = runtime.RawExtension{Raw: []byte(`{"kind":"` + strconv.Itoa(int(c.Uint32())) + `"}`)}
		},
		// Protobuf does not distinguish an empty list from an absent one.
		func(obj *v1alpha1.NamespaceInitializers, c randfill.Continue) {
			c.FillNoCustom(obj)
			if len(obj.Pending) == 0 {
				obj.Pending = nil
			}
		},
	}
}
