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

// AccessibleNamespace shows a core Namespace to users who have the permission to get that
// Namespace. nsinit-apiserver derives the object from the Namespace for each request. The object
// cannot be written. While the namespace is closed, requests without a field selector on
// status.phase show the object only to its creator and to users with the verb initialize on all
// namespaces. With this field selector, every user with the permission to get the Namespace sees
// the object. The resourceVersion is not the resourceVersion of the Namespace.
type AccessibleNamespace struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata has the name, UID, labels, creationTimestamp and deletionTimestamp of the
	// Namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is the state of the namespace.
	// +optional
	// +k8s:opaqueType
	Status AccessibleNamespaceStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// AccessibleNamespaceStatus is the state of a namespace.
type AccessibleNamespaceStatus struct {
	// phase is Initializing while the namespace is closed, and Active while it is open. The
	// phase is Terminating once the namespace is deleted.
	// +optional
	Phase LifecyclePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=LifecyclePhase"`

	// creator is the user for whom the namespace was created. Only this user sees the field.
	// +optional
	Creator string `json:"creator,omitempty" protobuf:"bytes,2,opt,name=creator"`

	// conditions are the conditions of the Namespace. Ready is always present, and is True
	// while the namespace is open. The messages of Ready and Initializing say what the
	// namespace waits for. Frozen is True while the namespace is frozen.
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
