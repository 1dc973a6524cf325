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

// PopulatedNamespace lists the objects that NamespacePopulations put into the core Namespace of
// the same name. The list is complete even after a crash, because policy-population lists each
// object before it applies the object. The PopulatedNamespace is deleted together with the
// namespace.
type PopulatedNamespace struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the name of the namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec identifies the namespace by its UID.
	// +optional
	Spec PopulatedNamespaceSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status shows which objects policy-population applied.
	// +optional
	// +k8s:opaqueType
	Status PopulatedNamespaceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// PopulatedNamespaceSpec identifies the namespace by its UID.
type PopulatedNamespaceSpec struct {
	// namespaceUID is the UID of the namespace. It is immutable. A later namespace of the same
	// name gets a new PopulatedNamespace.
	// +required
	// +k8s:required
	NamespaceUID types.UID `json:"namespaceUID" protobuf:"bytes,1,opt,name=namespaceUID,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// PopulatedNamespaceStatus shows which objects policy-population applied.
type PopulatedNamespaceStatus struct {
	// conditions are Applied and Ready. Applied is True if every object was applied. Ready is
	// True if every object was applied and was ready when the namespace opened. Ready is
	// Unknown until policy-population sets Applied.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// objects lists the objects that policy-population applied or must apply. The list is in
	// the order of the manifests.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Objects []PopulatedObject `json:"objects,omitempty" protobuf:"bytes,2,rep,name=objects"`
}

// PopulatedObject is one object that policy-population applied or must apply.
type PopulatedObject struct {
	// population is the name of the NamespacePopulation that contains the manifest of the
	// object.
	Population string `json:"population" protobuf:"bytes,1,opt,name=population"`

	// manifest is the name of the manifest in the NamespacePopulation.
	Manifest string `json:"manifest" protobuf:"bytes,2,opt,name=manifest"`

	// apiVersion is the API group and version of the object. It is empty if policy-population
	// could not evaluate the manifest.
	// +optional
	APIVersion string `json:"apiVersion,omitempty" protobuf:"bytes,3,opt,name=apiVersion"`

	// kind is the kind of the object.
	// +optional
	Kind string `json:"kind,omitempty" protobuf:"bytes,4,opt,name=kind"`

	// name is the name of the object.
	// +optional
	Name string `json:"name,omitempty" protobuf:"bytes,5,opt,name=name"`

	// uid is the UID of the applied object.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,6,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// prunePolicy is the prunePolicy that the manifest had when policy-population applied the
	// object.
	// +optional
	// +k8s:optional
	PrunePolicy PrunePolicyType `json:"prunePolicy,omitempty" protobuf:"bytes,7,opt,name=prunePolicy,casttype=PrunePolicyType"`

	// state is Pending, Applied, Failed or Conflict.
	State PopulatedObjectState `json:"state" protobuf:"bytes,8,opt,name=state,casttype=PopulatedObjectState"`

	// message says why policy-population could not apply or delete the object, or why the
	// object is in conflict or not ready.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,9,opt,name=message"`

	// lastAppliedTime is the time at which policy-population last applied the object.
	// +optional
	// +k8s:opaqueType
	LastAppliedTime *metav1.Time `json:"lastAppliedTime,omitempty" protobuf:"bytes,10,opt,name=lastAppliedTime"`

	// contentHash is a hash of the manifest that was last applied. It is set only if the
	// manifest has the driftPolicy Repair. With scope All, policy-population repairs the object
	// only while the manifest has this hash. The rollout applies a changed manifest.
	// +optional
	ContentHash string `json:"contentHash,omitempty" protobuf:"bytes,11,opt,name=contentHash"`
}

// PopulatedObjectState shows whether an object was applied.
// +enum
type PopulatedObjectState string

const (
	// PopulatedObjectPending: policy-population is about to apply the object.
	PopulatedObjectPending PopulatedObjectState = "Pending"
	// PopulatedObjectApplied: policy-population applied the object.
	PopulatedObjectApplied PopulatedObjectState = "Applied"
	// PopulatedObjectFailed: policy-population could not apply or delete the object.
	PopulatedObjectFailed PopulatedObjectState = "Failed"
	// PopulatedObjectConflict: another client owns the object or one of its fields.
	// policy-population did not change the object. Only a rollout to existing namespaces
	// reports this state.
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
