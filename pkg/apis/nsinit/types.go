/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceInitializerConfiguration registers initializers.
type NamespaceInitializerConfiguration struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Initializers []v1alpha1.RegisteredInitializer
	Spec         v1alpha1.NamespaceInitializerConfigurationSpec
	Status       v1alpha1.NamespaceInitializerConfigurationStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceInitializerConfigurationList is a list of configurations.
type NamespaceInitializerConfigurationList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespaceInitializerConfiguration
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InitializerConfiguration registers initializers for pods and Jobs.
type InitializerConfiguration struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Initializers []v1alpha1.Initializer
	Status       v1alpha1.InitializerConfigurationStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InitializerConfigurationList is a list of InitializerConfigurations.
type InitializerConfigurationList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []InitializerConfiguration
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycle describes the core Namespace of the same name.
type NamespaceLifecycle struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   v1alpha1.NamespaceLifecycleSpec
	Status v1alpha1.NamespaceLifecycleStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycleList is a list of NamespaceLifecycles.
type NamespaceLifecycleList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespaceLifecycle
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespacePopulation holds the manifests that policy-population applies to namespaces.
type NamespacePopulation struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   v1alpha1.NamespacePopulationSpec
	Status v1alpha1.NamespacePopulationStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespacePopulationList is a list of populations.
type NamespacePopulationList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespacePopulation
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PopulatedNamespace records what NamespacePopulations put into the core Namespace of the same name.
type PopulatedNamespace struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   v1alpha1.PopulatedNamespaceSpec
	Status v1alpha1.PopulatedNamespaceStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PopulatedNamespaceList is a list of PopulatedNamespaces.
type PopulatedNamespaceList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []PopulatedNamespace
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AccessibleNamespace is a core Namespace that the requester may get.
type AccessibleNamespace struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Status v1alpha1.AccessibleNamespaceStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AccessibleNamespaceList is a list of AccessibleNamespaces.
type AccessibleNamespaceList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []AccessibleNamespace
}

// Terminable is an object that is deleted in two steps: it is removed from storage once each
// participant in its spec.finalizers has acted.
type Terminable interface {
	// SpecFinalizers returns the participants that have not acted.
	SpecFinalizers() *[]v1alpha1.FinalizerName
}

// Reported is an object that registers initializers, and whose status shows which of them are served.
type Reported interface {
	// InitializerNames returns the names of the initializers, in their order.
	InitializerNames() []string
	// Reports returns the entries of status.initializers.
	Reports() *[]v1alpha1.RegisteredInitializerStatus
}

// InitializerNames implements Reported.
func (c *NamespaceInitializerConfiguration) InitializerNames() (names []string) {
	for i := range c.Initializers {
		names = append(names, c.Initializers[i].Name)
	}
	return names
}

// InitializerNames implements Reported.
func (c *InitializerConfiguration) InitializerNames() (names []string) {
	for i := range c.Initializers {
		names = append(names, c.Initializers[i].Name)
	}
	return names
}

// Reports implements Reported.
func (c *NamespaceInitializerConfiguration) Reports() *[]v1alpha1.RegisteredInitializerStatus {
	return &c.Status.Initializers
}

// Reports implements Reported.
func (c *InitializerConfiguration) Reports() *[]v1alpha1.RegisteredInitializerStatus {
	return &c.Status.Initializers
}

// SpecFinalizers implements Terminable.
func (c *NamespaceInitializerConfiguration) SpecFinalizers() *[]v1alpha1.FinalizerName {
	return &c.Spec.Finalizers
}

// SpecFinalizers implements Terminable.
func (l *NamespaceLifecycle) SpecFinalizers() *[]v1alpha1.FinalizerName { return &l.Spec.Finalizers }
