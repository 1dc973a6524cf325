/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// NamespacePopulation says what is put into new namespaces before their tenants
// may act: manifests with parameters, which the initializer policy-population
// applies with its own identity. Populations are applied in the order of their
// names; the order of the manifests within each is kept. The idea is that of
// the Namespace Population proposal, of which the Namespace Initializer KEP
// tells in its first user story.
type NamespacePopulation struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name decides the order in
	// which populations are applied.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says what is applied, and where.
	// +optional
	Spec NamespacePopulationSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what came of it.
	// +optional
	// +k8s:opaqueType
	Status NamespacePopulationStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespacePopulationSpec says what is applied, and where.
type NamespacePopulationSpec struct {
	// namespaceSelector selects namespaces by their labels. Absent: all of them.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,1,opt,name=namespaceSelector"`

	// manifests are applied in this order.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=128
	Manifests []PopulationManifest `json:"manifests,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=manifests"`
}

// PopulationManifest is one object that namespaces get.
type PopulationManifest struct {
	// name identifies the manifest within its population. It is a DNS label.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// when is a CEL expression that yields true or false. If it yields false, the
	// namespace does not get the object. It sees what the template's expressions
	// see. Absent: every namespace that is selected gets it.
	// +optional
	When string `json:"when,omitempty" protobuf:"bytes,2,opt,name=when"`

	// driftPolicy says what happens after the namespace was opened. Ignore, the
	// default: the object belongs to the namespace's tenants. Repair: it follows
	// the manifest, and comes back if it is changed or deleted.
	// +optional
	// +k8s:optional
	DriftPolicy DriftPolicyType `json:"driftPolicy,omitempty" protobuf:"bytes,3,opt,name=driftPolicy,casttype=DriftPolicyType"`

	// prunePolicy says what happens to the objects when the manifest is taken out
	// of the population, or the population is deleted. Delete, the default: they
	// are deleted. Orphan: they stay.
	// +optional
	// +k8s:optional
	PrunePolicy PrunePolicyType `json:"prunePolicy,omitempty" protobuf:"bytes,4,opt,name=prunePolicy,casttype=PrunePolicyType"`

	// template is the object. Strings in it may hold CEL expressions in ${...},
	// which see namespaceObject (with metadata.name, uid, labels and
	// annotations), creator (the user who created the namespace) and
	// creatorGroups; $${ stands for a literal ${. A string that is one expression
	// takes the type of what it yields. apiVersion, kind and metadata.name are
	// required, metadata.namespace is set by nsinit.
	// +required
	// +k8s:opaqueType
	Template runtime.RawExtension `json:"template" protobuf:"bytes,5,opt,name=template"`
}

// DriftPolicyType says what happens to an object after its namespace was opened.
// +enum
// +k8s:enum
type DriftPolicyType string

const (
	// DriftIgnore leaves the object to the namespace's tenants.
	DriftIgnore DriftPolicyType = "Ignore"
	// DriftRepair makes the object follow its manifest.
	DriftRepair DriftPolicyType = "Repair"
)

// PrunePolicyType says what happens to an object whose manifest is no more.
// +enum
// +k8s:enum
type PrunePolicyType string

const (
	// PruneDelete deletes the object.
	PruneDelete PrunePolicyType = "Delete"
	// PruneOrphan leaves it where it is.
	PruneOrphan PrunePolicyType = "Orphan"
)

// NamespacePopulationStatus is what came of a population.
type NamespacePopulationStatus struct {
	// observedGeneration is the generation that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// conditions of the population. Applied is True if every manifest was applied
	// to each namespace that has objects of the population. Ready is True if every
	// manifest could be applied to a new namespace: the cluster knows its kind, and
	// policy-population has the permission to apply it. Otherwise, the message
	// says what is missing.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`

	// namespaces is the number of namespaces that have objects of the population.
	// +optional
	Namespaces int32 `json:"namespaces,omitempty" protobuf:"varint,3,opt,name=namespaces"`

	// manifests tells of each manifest.
	// +optional
	// +listType=map
	// +listMapKey=name
	Manifests []PopulationManifestStatus `json:"manifests,omitempty" protobuf:"bytes,4,rep,name=manifests"`
}

// PopulationManifestStatus is what came of one manifest.
type PopulationManifestStatus struct {
	// name is that of the manifest.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// applied is the number of namespaces in which it was applied.
	Applied int32 `json:"applied" protobuf:"varint,2,opt,name=applied"`

	// failed is the number of namespaces in which it could not be applied.
	Failed int32 `json:"failed" protobuf:"varint,3,opt,name=failed"`

	// message says why, for the namespace that is named.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`

	// namespace is one of those in which it failed, the first by name.
	// +optional
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,5,opt,name=namespace"`
}

// ConditionApplied is the condition of a NamespacePopulation, and of a
// PopulatedNamespace, that says whether every manifest could be applied.
const ConditionApplied = "Applied"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespacePopulationList is a list of populations.
type NamespacePopulationList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of populations.
	Items []NamespacePopulation `json:"items" protobuf:"bytes,2,rep,name=items"`
}
