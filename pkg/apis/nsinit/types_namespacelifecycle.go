/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycle describes the core Namespace of the same name: which
// initializers the namespace still waits for, and which participants must clean up
// before it can be removed. nsinit creates and deletes NamespaceLifecycles; users
// read them.
type NamespaceLifecycle struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   NamespaceLifecycleSpec
	Status NamespaceLifecycleStatus
}

// NamespaceLifecycleSpec is the plan of a namespace, and what remains to be done.
type NamespaceLifecycleSpec struct {
	NamespaceUID types.UID
	Plan         []PlannedInitializer
	Initializers *NamespaceInitializers
	Finalizers   []FinalizerName
	Skipped      []string
}

// PlannedInitializer is one entry of the plan: an initializer as it was
// registered when the namespace was created.
type PlannedInitializer struct {
	RegisteredInitializer
	Configuration *ConfigurationReference
}

// ConfigurationReference points to one incarnation of a
// NamespaceInitializerConfiguration.
type ConfigurationReference struct {
	Name string
	UID  types.UID
}

// NamespaceInitializers tracks the progress of initialization.
type NamespaceInitializers struct {
	Pending           []NamespaceInitializer
	Result            *metav1.Status
	FailedInitializer string
}

// NamespaceInitializer is an initializer that has not finished.
type NamespaceInitializer struct {
	Name string
}

// FinalizerName is the name of a participant that must act before an object can be
// removed.
type FinalizerName string

// FinalizerKubernetes is the finalizer that nsinit itself removes: from a
// NamespaceLifecycle when the content of its namespace is deleted, from a
// configuration when no namespace waits for it.
const FinalizerKubernetes FinalizerName = "kubernetes"

// NamespaceLifecycleStatus is the progress of a namespace.
type NamespaceLifecycleStatus struct {
	Phase               LifecyclePhase
	CurrentInitializers []string
	Initializers        []InitializerStatus
	Conditions          []metav1.Condition
}

// LifecyclePhase is the phase of a namespace.
type LifecyclePhase string

const (
	// LifecycleInitializing namespaces wait for an initializer.
	LifecycleInitializing LifecyclePhase = "Initializing"
	// LifecycleActive namespaces are completely initialized.
	LifecycleActive LifecyclePhase = "Active"
	// LifecycleTerminating namespaces are being deleted.
	LifecycleTerminating LifecyclePhase = "Terminating"
)

// InitializerStatus is the progress of one initializer of the plan.
type InitializerStatus struct {
	Name        string
	State       InitializerState
	StartTime   *metav1.MicroTime
	EndTime     *metav1.MicroTime
	Deadline    *metav1.MicroTime
	Message     string
	LastActor   string
	StalledTime *metav1.MicroTime
}

// InitializerState is the progress of one initializer.
type InitializerState string

const (
	// InitializerWaiting initializers have others before them.
	InitializerWaiting InitializerState = "Waiting"
	// InitializerRunning initializers have their turn.
	InitializerRunning InitializerState = "Running"
	// InitializerDone initializers have removed themselves.
	InitializerDone InitializerState = "Done"
	// InitializerSkipped initializers were dropped at their deadline, or by an
	// administrator.
	InitializerSkipped InitializerState = "Skipped"
	// InitializerFailed initializers have set a failing result.
	InitializerFailed InitializerState = "Failed"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycleList is a list of NamespaceLifecycles.
type NamespaceLifecycleList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespaceLifecycle
}
