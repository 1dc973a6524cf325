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

// PopulatedNamespace records what NamespacePopulations put into the core
// Namespace of the same name. policy-population lists each object here before it
// applies it, so that none is missing after a crash. It is removed with the
// namespace.
type PopulatedNamespace struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   PopulatedNamespaceSpec
	Status PopulatedNamespaceStatus
}

// PopulatedNamespaceSpec identifies the namespace.
type PopulatedNamespaceSpec struct {
	NamespaceUID types.UID
}

// PopulatedNamespaceStatus is what was applied.
type PopulatedNamespaceStatus struct {
	Conditions []metav1.Condition
	Objects    []PopulatedObject
}

// PopulatedObject is an object that was applied, or should be.
type PopulatedObject struct {
	Population      string
	Manifest        string
	APIVersion      string
	Kind            string
	Name            string
	UID             types.UID
	PrunePolicy     PrunePolicyType
	State           PopulatedObjectState
	Message         string
	LastAppliedTime *metav1.Time
	ContentHash     string
}

// PopulatedObjectState is the result for an object.
type PopulatedObjectState string

const (
	// PopulatedObjectPending: it is about to be applied.
	PopulatedObjectPending PopulatedObjectState = "Pending"
	// PopulatedObjectApplied: it was applied.
	PopulatedObjectApplied PopulatedObjectState = "Applied"
	// PopulatedObjectFailed: it could not be applied, or not deleted.
	PopulatedObjectFailed PopulatedObjectState = "Failed"
	// PopulatedObjectConflict: the namespace is older than the manifest, and another
	// client owns the object or a field of it. The object was not changed.
	PopulatedObjectConflict PopulatedObjectState = "Conflict"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PopulatedNamespaceList is a list of PopulatedNamespaces.
type PopulatedNamespaceList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []PopulatedNamespace
}
