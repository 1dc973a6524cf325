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

// NamespacePopulation holds the manifests that the initializer policy-population
// applies to new namespaces, with its own identity, before tenants can write into
// them. With scope All, it also applies them to namespaces that exist already. It
// implements the Namespace Population proposal, which the Namespace Initializer KEP
// describes in its first user story.
type NamespacePopulation struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is a DNS label. If two
	// populations have a manifest of the same object, that of the later name counts.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec holds the manifests and selects the namespaces.
	// +optional
	Spec NamespacePopulationSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what policy-population applied, and what it could not apply.
	// +optional
	// +k8s:opaqueType
	Status NamespacePopulationStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespacePopulationSpec holds the manifests and selects the namespaces.
type NamespacePopulationSpec struct {
	// namespaceSelector selects namespaces by their labels. Absent: all of them.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,1,opt,name=namespaceSelector"`

	// manifests are the objects that the namespaces get: at most 128, with 1 MiB in
	// total. They are applied at the same time. What fails is tried again, in this
	// order, because an object can need an earlier one.
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

	// scope says which of the selected namespaces get the manifests. New, the
	// default: those that are created while the population exists. All: also those
	// that exist already and are open, as rollout says. Namespaces exempt by name
	// and those whose names start with kube- are not among them.
	// +optional
	// +k8s:optional
	Scope PopulationScopeType `json:"scope,omitempty" protobuf:"bytes,3,opt,name=scope,casttype=PopulationScopeType"`

	// rollout is what happens in namespaces that exist already. It needs scope All.
	// Report, the default: status.rollout reports what Apply would do. Apply: a few
	// namespaces at a time get the objects that they do not have and the changes of
	// manifests that have Repair, and lose the objects of removed manifests. With
	// both, the drift of objects that were rolled out is repaired. Apply does not
	// replace an object of another client.
	// +optional
	// +k8s:optional
	Rollout PopulationRolloutType `json:"rollout,omitempty" protobuf:"bytes,4,opt,name=rollout,casttype=PopulationRolloutType"`

	// namespaceMetadata is what the namespaces get themselves: labels and
	// annotations. In a new namespace, they replace those that its creator set.
	// +optional
	// +k8s:optional
	NamespaceMetadata *PopulationNamespaceMetadata `json:"namespaceMetadata,omitempty" protobuf:"bytes,5,opt,name=namespaceMetadata"`
}

// PopulationNamespaceMetadata is labels and annotations of namespaces. Values can
// contain expressions like the strings of a template. Keys that begin with
// nsinit.dev/, kubernetes.io/metadata.name and labels that namespaceSelector reads
// are not allowed.
type PopulationNamespaceMetadata struct {
	// labels are labels that namespaces get, at most 63.
	// +optional
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,1,rep,name=labels"`

	// annotations are annotations that namespaces get, at most 64.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty" protobuf:"bytes,2,rep,name=annotations"`

	// driftPolicy is what happens after the namespace opens. Ignore, the default:
	// users who may update the namespace can change them. Repair: they follow the
	// population.
	// +optional
	// +k8s:optional
	DriftPolicy DriftPolicyType `json:"driftPolicy,omitempty" protobuf:"bytes,3,opt,name=driftPolicy,casttype=DriftPolicyType"`
}

// PopulationScopeType says which of the selected namespaces get the manifests.
// +enum
// +k8s:enum
type PopulationScopeType string

const (
	// ScopeNew means namespaces that are created while the population exists.
	ScopeNew PopulationScopeType = "New"
	// ScopeAll means also namespaces that exist already.
	ScopeAll PopulationScopeType = "All"
)

// PopulationRolloutType is what happens in namespaces that exist already.
// +enum
// +k8s:enum
type PopulationRolloutType string

const (
	// RolloutReport reports what Apply would do.
	RolloutReport PopulationRolloutType = "Report"
	// RolloutApply gives a few namespaces at a time what changed in the manifests.
	RolloutApply PopulationRolloutType = "Apply"
)

// PopulationManifest is one object that namespaces get.
type PopulationManifest struct {
	// name identifies the manifest within its population. It is a DNS label.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// when is a CEL expression that yields true or false. If it yields false, the
	// namespace does not get the object. It has the variables of the template.
	// Absent: every selected namespace gets the object.
	// +optional
	When string `json:"when,omitempty" protobuf:"bytes,2,opt,name=when"`

	// driftPolicy is what happens after the namespace opens. Ignore, the default:
	// tenants own the object. Repair: the object follows the manifest, and is
	// applied again if it is changed or deleted.
	// +optional
	// +k8s:optional
	DriftPolicy DriftPolicyType `json:"driftPolicy,omitempty" protobuf:"bytes,3,opt,name=driftPolicy,casttype=DriftPolicyType"`

	// prunePolicy is what happens to the objects when the manifest is removed from
	// the population, or the population is deleted. Delete, the default: they are
	// deleted. Orphan: they are kept.
	// +optional
	// +k8s:optional
	PrunePolicy PrunePolicyType `json:"prunePolicy,omitempty" protobuf:"bytes,4,opt,name=prunePolicy,casttype=PrunePolicyType"`

	// template is the object. Strings in it can contain CEL expressions in ${...}.
	// Their variables are namespaceObject (with metadata.name, uid, labels and
	// annotations), creator (the user who created the namespace, or on behalf of
	// whom it was created), creatorGroups and requester (the user whose request
	// created it). $${ is a literal ${. A string that is one expression
	// takes the type of its value. apiVersion, kind and metadata.name are
	// required; nsinit sets metadata.namespace.
	// +required
	// +k8s:opaqueType
	Template runtime.RawExtension `json:"template" protobuf:"bytes,5,opt,name=template"`

	// readyWhen is a CEL expression that yields true or false. A new namespace stays
	// closed until it yields true. It has the variables of the template, and object,
	// which is the object as it is stored. While it fails, the object is not ready.
	// Absent: the object is ready when it is applied. A ResourceQuota is ready only
	// when its status has every entry of spec.hard: before that, kube-apiserver does
	// not enforce it.
	// +optional
	ReadyWhen string `json:"readyWhen,omitempty" protobuf:"bytes,6,opt,name=readyWhen"`
}

// DriftPolicyType is what happens to an object after its namespace opens.
// +enum
// +k8s:enum
type DriftPolicyType string

const (
	// DriftIgnore leaves the object to the namespace's tenants.
	DriftIgnore DriftPolicyType = "Ignore"
	// DriftRepair makes the object follow its manifest.
	DriftRepair DriftPolicyType = "Repair"
)

// PrunePolicyType is what happens to an object whose manifest was removed.
// +enum
// +k8s:enum
type PrunePolicyType string

const (
	// PruneDelete deletes the object.
	PruneDelete PrunePolicyType = "Delete"
	// PruneOrphan keeps the object.
	PruneOrphan PrunePolicyType = "Orphan"
)

// NamespacePopulationStatus is the result of a population.
type NamespacePopulationStatus struct {
	// observedGeneration is the generation that the conditions Applied and Ready
	// describe, the lower one if they differ. It is absent until policy-population has
	// checked the population.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// conditions of the population. Applied is True if every manifest was applied
	// to each namespace that has objects of the population. Ready is True if every
	// manifest could be applied to a new namespace: the cluster knows its kind, and
	// policy-population has the permission to apply it. Otherwise, the message
	// says what is missing. With scope All, RolledOut is True if every selected
	// namespace that exists has received every object. Otherwise, its reason and
	// message say what is missing, and what to do.
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

	// manifests are the results of the manifests.
	// +optional
	// +listType=map
	// +listMapKey=name
	Manifests []PopulationManifestStatus `json:"manifests,omitempty" protobuf:"bytes,4,rep,name=manifests"`

	// rollout is the state of the rollout to namespaces that exist already. It is
	// absent with scope New.
	// +optional
	Rollout *PopulationRolloutStatus `json:"rollout,omitempty" protobuf:"bytes,5,opt,name=rollout"`
}

// PopulationRolloutStatus is the state of the rollout to namespaces that exist
// already, or the report of what it would do.
type PopulationRolloutStatus struct {
	// observedGeneration is the generation that the counts describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// namespaces is the number of namespaces that are selected or have objects to
	// delete, and are open and neither exempt, frozen nor being deleted.
	Namespaces int32 `json:"namespaces" protobuf:"varint,2,opt,name=namespaces"`

	// current is the number of these that have received every object and change, and
	// have nothing to delete.
	Current int32 `json:"current" protobuf:"varint,3,opt,name=current"`

	// checked is the number of these that the counts below describe. A namespace is
	// checked when the report or the rollout reaches it, and again after a change.
	Checked int32 `json:"checked" protobuf:"varint,4,opt,name=checked"`

	// toCreate is the number of objects that do not exist and would be created.
	ToCreate int32 `json:"toCreate" protobuf:"varint,5,opt,name=toCreate"`

	// toChange is the number of objects that exist, belong to a population, and would
	// be changed.
	ToChange int32 `json:"toChange" protobuf:"varint,6,opt,name=toChange"`

	// toDelete is the number of objects of removed manifests that would be deleted.
	ToDelete int32 `json:"toDelete" protobuf:"varint,11,opt,name=toDelete"`

	// unchanged is the number of objects that the namespaces already have.
	Unchanged int32 `json:"unchanged" protobuf:"varint,7,opt,name=unchanged"`

	// conflicts is the number of manifests in whose place another client has an
	// object, or a field with another value. Such an object is not changed.
	Conflicts int32 `json:"conflicts" protobuf:"varint,8,opt,name=conflicts"`

	// refused is the number of objects that cannot be applied or deleted:
	// policy-population lacks a permission, an admission policy or webhook rejects
	// them, their kind does not exist, or an expression fails.
	Refused int32 `json:"refused" protobuf:"varint,9,opt,name=refused"`

	// problems are the first conflicts and refusals, at most ten, in the order of
	// the namespaces.
	// +optional
	// +listType=atomic
	Problems []PopulationProblem `json:"problems,omitempty" protobuf:"bytes,10,rep,name=problems"`
}

// PopulationProblem is why a namespace that exists does not get an object.
type PopulationProblem struct {
	// namespace is the name of the namespace.
	Namespace string `json:"namespace" protobuf:"bytes,1,opt,name=namespace"`

	// manifest is the name of the manifest.
	Manifest string `json:"manifest" protobuf:"bytes,2,opt,name=manifest"`

	// result is Conflict or Refused.
	Result PopulationProblemType `json:"result" protobuf:"bytes,3,opt,name=result,casttype=PopulationProblemType"`

	// message is the reason, with the next step.
	Message string `json:"message" protobuf:"bytes,4,opt,name=message"`
}

// PopulationProblemType is the type of a problem.
// +enum
type PopulationProblemType string

const (
	// ProblemConflict: another client owns the object or a field of it.
	ProblemConflict PopulationProblemType = "Conflict"
	// ProblemRefused: the object cannot be applied.
	ProblemRefused PopulationProblemType = "Refused"
)

// PopulationManifestStatus is the result of one manifest.
type PopulationManifestStatus struct {
	// name is that of the manifest.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// applied is the number of namespaces in which it was applied.
	Applied int32 `json:"applied" protobuf:"varint,2,opt,name=applied"`

	// failed is the number of namespaces in which it could not be applied.
	Failed int32 `json:"failed" protobuf:"varint,3,opt,name=failed"`

	// message is the error in the first namespace in which it failed.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`

	// namespace is the first namespace, by name, in which it failed.
	// +optional
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,5,opt,name=namespace"`
}

// ConditionApplied is True if every manifest could be applied. NamespacePopulations
// and PopulatedNamespaces have it.
const ConditionApplied = "Applied"

// ConditionRolledOut is True if every selected namespace that exists has received every
// object. NamespacePopulations with scope All have it.
const ConditionRolledOut = "RolledOut"

const (
	// ReasonRolloutReporting: the report does not describe every namespace yet.
	ReasonRolloutReporting = "Reporting"
	// ReasonRolloutReported: the report is complete.
	ReasonRolloutReported = "Reported"
	// ReasonRolloutProgressing: the rollout has not reached every namespace yet.
	ReasonRolloutProgressing = "Progressing"
	// ReasonRolloutPaused: three namespaces refused objects, and so did a dry run in another one. The
	// rollout reaches no other namespace. Fix what the message says.
	ReasonRolloutPaused = "Paused"
	// ReasonRolloutIncomplete: the rollout has reached every namespace. Some did not receive every
	// object, or an object cannot be repaired.
	ReasonRolloutIncomplete = "Incomplete"
	// ReasonRolloutComplete: every namespace has received every object. Tenants may since have changed or
	// deleted those with Ignore.
	ReasonRolloutComplete = "Complete"
	// ReasonRolloutExemptionsUnknown: the list of exemptions cannot be read, so no namespace is
	// changed. Apply artifacts/deploy again.
	ReasonRolloutExemptionsUnknown = "ExemptionsUnknown"
	// ReasonRolloutNamespacesUnknown: the namespaces cannot be listed, so none is changed. Apply
	// artifacts/deploy again.
	ReasonRolloutNamespacesUnknown = "NamespacesUnknown"
)

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
