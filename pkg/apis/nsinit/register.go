/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of nsinit.
const GroupName = "nsinit.dev"

// SchemeGroupVersion is the internal version of the group.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}

var (
	// SchemeBuilder collects the functions that register this package's types. The generated file registers the conversions.
	SchemeBuilder      = runtime.NewSchemeBuilder(addKnownTypes)
	localSchemeBuilder = &SchemeBuilder
	// AddToScheme registers the internal types and their conversions with a scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

// Resource qualifies a resource name with this package's group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&AccessibleNamespace{},
		&AccessibleNamespaceList{},
		&InitializerConfiguration{},
		&InitializerConfigurationList{},
		&NamespaceInitializerConfiguration{},
		&NamespaceInitializerConfigurationList{},
		&NamespaceLifecycle{},
		&NamespaceLifecycleList{},
		&NamespacePopulation{},
		&NamespacePopulationList{},
		&PopulatedNamespace{},
		&PopulatedNamespaceList{},
	)
	return nil
}
