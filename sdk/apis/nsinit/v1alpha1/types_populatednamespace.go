/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// PopulatedNamespace records what NamespacePopulations put into the core
// Namespace of the same name. policy-population lists each object here before it
// applies it, so that none is missing after a crash. It is removed with the
// namespace.
type PopulatedNamespace struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is that of the namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec identifies the namespace.
	// +optional
	Spec PopulatedNamespaceSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what was applied.
	// +optional
	// +k8s:opaqueType
	Status PopulatedNamespaceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// PopulatedNamespaceSpec identifies the namespace.
type PopulatedNamespaceSpec struct {
	// namespaceUID is the UID of the namespace. It is immutable: another
	// namespace of the same name gets a new PopulatedNamespace.
	// +required
	// +k8s:required
	NamespaceUID types.UID `json:"namespaceUID" protobuf:"bytes,1,opt,name=namespaceUID,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// PopulatedNamespaceStatus is what was applied.
type PopulatedNamespaceStatus struct {
	// conditions are Applied and Ready. Applied is True if every object matches its
	// manifest, or did when the namespace opened. Ready is True if, in addition, every object was ready when
	// the namespace opened, and Unknown before Applied is set.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// objects are those that were applied, or should be, in the order in which
	// they are applied.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Objects []PopulatedObject `json:"objects,omitempty" protobuf:"bytes,2,rep,name=objects"`
}

// PopulatedObject is an object that was applied, or should be.
type PopulatedObject struct {
	// population is the name of the NamespacePopulation.
	Population string `json:"population" protobuf:"bytes,1,opt,name=population"`

	// manifest is the name of the manifest in it.
	Manifest string `json:"manifest" protobuf:"bytes,2,opt,name=manifest"`

	// apiVersion is the group and version of the object. It is empty if the
	// manifest could not be evaluated.
	// +optional
	APIVersion string `json:"apiVersion,omitempty" protobuf:"bytes,3,opt,name=apiVersion"`

	// kind is the kind of the object.
	// +optional
	Kind string `json:"kind,omitempty" protobuf:"bytes,4,opt,name=kind"`

	// name is the name of the object.
	// +optional
	Name string `json:"name,omitempty" protobuf:"bytes,5,opt,name=name"`

	// uid is the UID of the object that was applied.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,6,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// prunePolicy is that of the manifest when the object was applied.
	// +optional
	// +k8s:optional
	PrunePolicy PrunePolicyType `json:"prunePolicy,omitempty" protobuf:"bytes,7,opt,name=prunePolicy,casttype=PrunePolicyType"`

	// state is Pending, Applied, Failed or Conflict.
	State PopulatedObjectState `json:"state" protobuf:"bytes,8,opt,name=state,casttype=PopulatedObjectState"`

	// message says why it failed, what is in conflict, or why it is not ready.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,9,opt,name=message"`

	// lastAppliedTime is when it was last applied.
	// +optional
	// +k8s:opaqueType
	LastAppliedTime *metav1.Time `json:"lastAppliedTime,omitempty" protobuf:"bytes,10,opt,name=lastAppliedTime"`

	// contentHash is a hash of the manifest as it was last applied, if its drift is
	// repaired. With scope All, policy-population repairs the object while the hash
	// of the manifest is the same. The rollout applies another one.
	// +optional
	ContentHash string `json:"contentHash,omitempty" protobuf:"bytes,11,opt,name=contentHash"`
}

// PopulatedObjectState is the result for an object.
// +enum
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
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of PopulatedNamespaces.
	Items []PopulatedNamespace `json:"items" protobuf:"bytes,2,rep,name=items"`
}
