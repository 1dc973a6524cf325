/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AccessibleNamespace is a core Namespace that the requester may get. It is
// derived from the Namespace for each request, and cannot be written. Until the
// namespace is open for the first time, only its creator, users with the verb
// initialize on all namespaces, and requests with a field selector on
// status.phase see it. The resourceVersion is not that of the Namespace.
type AccessibleNamespace struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata has the name, the UID, the labels, and the times of the creation and
	// the deletion of the Namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is the state of the namespace.
	// +optional
	// +k8s:opaqueType
	Status AccessibleNamespaceStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// AccessibleNamespaceStatus is the state of a namespace, as its Namespace shows it.
type AccessibleNamespaceStatus struct {
	// phase is Initializing while no tenant can write into the namespace, then
	// Active, and Terminating once the namespace is deleted.
	// +optional
	Phase LifecyclePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=LifecyclePhase"`

	// creator is the user for whom the namespace was created. Only that user sees it.
	// +optional
	Creator string `json:"creator,omitempty" protobuf:"bytes,2,opt,name=creator"`

	// conditions are those of the Namespace. Ready is always one of them: it is True
	// while tenants can write into the namespace. Its message, and that of
	// Initializing, says what the namespace waits for. Frozen is True while the
	// namespace is frozen.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,3,rep,name=conditions"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AccessibleNamespaceList is a list of AccessibleNamespaces.
type AccessibleNamespaceList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata. A list is never divided into pages.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the AccessibleNamespaces, in the order of their names.
	Items []AccessibleNamespace `json:"items" protobuf:"bytes,2,rep,name=items"`
}
