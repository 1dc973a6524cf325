/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of nsinit.
const GroupName = "nsinit.dev"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	// SchemeBuilder collects the functions that register this package's types.
	SchemeBuilder      runtime.SchemeBuilder
	localSchemeBuilder = &SchemeBuilder
	// AddToScheme registers this package's types, defaults and
	// declarative validation with a scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

func init() {
	// Only what is written by hand is registered here. The generated files
	// register themselves, so the package also compiles without them.
	localSchemeBuilder.Register(addKnownTypes, addDefaultingFuncs, addFieldLabelConversions)
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
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// Resource qualifies a resource name with this package's group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}
