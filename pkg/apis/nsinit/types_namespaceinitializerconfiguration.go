/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceInitializerConfiguration registers initializers: processes that must
// act on new namespaces, by default on all and one after the other, before tenants
// can write into them. Configurations are merged in the order of their names; the order
// within each is kept. A namespace gets its plan when it is created, so a
// change applies only to namespaces that are created after it.
type NamespaceInitializerConfiguration struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Initializers []RegisteredInitializer
	Spec         NamespaceInitializerConfigurationSpec
	Status       NamespaceInitializerConfigurationStatus
}

// RegisteredInitializer is one initializer of a configuration.
type RegisteredInitializer struct {
	Name              string
	FailurePolicy     *FailurePolicyType
	TimeoutSeconds    *int32
	Finalizer         bool
	MatchConditions   []MatchCondition
	NamespaceSelector *metav1.LabelSelector
	Ordering          *InitializerOrdering
	Activation        *ActivationPolicy
	Holds             *HoldPolicy
}

// MatchCondition is one condition that a namespace must fulfil.
type MatchCondition struct {
	Name       string
	Expression string
}

// InitializerOrdering decides which initializers act before another one.
type InitializerOrdering struct {
	After []string
}

// ActivationPolicy decides when new namespaces begin to wait for an initializer.
type ActivationPolicy string

const (
	// ActivationAlways initializers are in the plans from their registration on.
	ActivationAlways ActivationPolicy = "Always"
	// ActivationWhenServed initializers are in no plan before a program has reported
	// that it serves them.
	ActivationWhenServed ActivationPolicy = "WhenServed"
)

// HoldPolicy is what a participant needs until it has cleaned up.
type HoldPolicy string

// HoldContent participants need the objects in the namespace.
const HoldContent HoldPolicy = "Content"

// FailurePolicyType is what happens to a namespace whose initializer misses its
// deadline.
type FailurePolicyType string

const (
	// Ignore drops the initializer at its deadline.
	Ignore FailurePolicyType = "Ignore"
	// Fail fails the namespace's initialization at the deadline.
	Fail FailurePolicyType = "Fail"
)

// NamespaceInitializerConfigurationSpec holds the finalizers of a configuration.
type NamespaceInitializerConfigurationSpec struct {
	Finalizers []FinalizerName
}

// NamespaceInitializerConfigurationStatus is what nsinit observed of a
// configuration.
type NamespaceInitializerConfigurationStatus struct {
	Phase              ConfigurationPhase
	Conditions         []metav1.Condition
	ObservedGeneration int64
	PendingNamespaces  int32
	Initializers       []RegisteredInitializerStatus
}

// RegisteredInitializerStatus is what nsinit observed of one initializer of a
// configuration.
type RegisteredInitializerStatus struct {
	Name       string
	ReportTime *metav1.MicroTime
	Reporter   string
	Conditions []metav1.Condition
}

// ConfigurationPhase is the phase of a configuration.
type ConfigurationPhase string

const (
	// ConfigurationActive configurations are applied to new namespaces.
	ConfigurationActive ConfigurationPhase = "Active"
	// ConfigurationTerminating configurations are not applied to new namespaces.
	// They are removed once no namespace waits for them.
	ConfigurationTerminating ConfigurationPhase = "Terminating"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceInitializerConfigurationList is a list of configurations.
type NamespaceInitializerConfigurationList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespaceInitializerConfiguration
}
