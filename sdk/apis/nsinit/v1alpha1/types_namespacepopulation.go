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

// NamespacePopulation holds manifests. The initializer policy-population applies them to each
// new namespace before tenants can write into the namespace. It applies the manifests with its
// own permissions, not with the permissions of the creator. With scope All, policy-population
// also applies the manifests to existing namespaces. NamespacePopulations implement the first
// user story of the Namespace Initializer KEP.
type NamespacePopulation struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name must be a DNS label. If two
	// populations have a manifest of the same object, the population whose name sorts later
	// takes precedence.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec holds the manifests and selects the namespaces.
	// +optional
	Spec NamespacePopulationSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status shows what policy-population applied, and what it could not apply.
	// +optional
	// +k8s:opaqueType
	Status NamespacePopulationStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespacePopulationSpec holds the manifests and selects the namespaces.
type NamespacePopulationSpec struct {
	// namespaceSelector selects namespaces by their labels. If it is absent, the population
	// selects all namespaces.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,1,opt,name=namespaceSelector"`

	// manifests are the objects that the selected namespaces get. There can be at most 128
	// manifests, with 1 MiB in total. policy-population applies them at the same time. It
	// retries failed manifests in the order of the list, because an object can need an earlier
	// object.
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

	// scope decides which of the selected namespaces get the manifests. With New, the default,
	// only namespaces that are created while the population exists get the manifests. With All,
	// existing open namespaces also get the manifests, as the field rollout says. An existing
	// namespace gets no manifests if the namespace is exempt by name, or if its name begins with
	// kube-.
	// +optional
	// +k8s:optional
	Scope PopulationScopeType `json:"scope,omitempty" protobuf:"bytes,3,opt,name=scope,casttype=PopulationScopeType"`

	// rollout decides what policy-population does in existing namespaces. It can be set only
	// with scope All. With Report, the default, status.rollout reports what Apply would do.
	// With Apply, policy-population changes a few namespaces at a time. It creates missing
	// objects, applies changes of manifests that have the driftPolicy Repair, and deletes the
	// objects of removed manifests. Apply does not replace an object of another client. With
	// Report and with Apply, policy-population repairs objects that were rolled out before, if
	// their manifests have Repair.
	// +optional
	// +k8s:optional
	Rollout PopulationRolloutType `json:"rollout,omitempty" protobuf:"bytes,4,opt,name=rollout,casttype=PopulationRolloutType"`

	// namespaceMetadata holds labels and annotations for the namespaces themselves. In a new
	// namespace, these values replace the values that the creator set.
	// +optional
	// +k8s:optional
	NamespaceMetadata *PopulationNamespaceMetadata `json:"namespaceMetadata,omitempty" protobuf:"bytes,5,opt,name=namespaceMetadata"`
}

// PopulationNamespaceMetadata holds labels and annotations for namespaces. As in the field template
// of a PopulationManifest, values can contain CEL expressions in ${...}. Keys cannot begin with
// nsinit.dev/. The key kubernetes.io/metadata.name is not allowed. Labels that namespaceSelector
// reads are not allowed.
type PopulationNamespaceMetadata struct {
	// labels are the labels that the namespaces get, at most 63.
	// +optional
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,1,rep,name=labels"`

	// annotations are the annotations that the namespaces get, at most 64.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty" protobuf:"bytes,2,rep,name=annotations"`

	// driftPolicy decides what happens to the labels and annotations after the namespace opens.
	// With Ignore, the default, users who may update the namespace can change the labels and
	// annotations. With Repair, policy-population reverts such changes, and applies changes of
	// the population.
	// +optional
	// +k8s:optional
	DriftPolicy DriftPolicyType `json:"driftPolicy,omitempty" protobuf:"bytes,3,opt,name=driftPolicy,casttype=DriftPolicyType"`
}

// PopulationScopeType decides which of the selected namespaces get the manifests.
// +enum
// +k8s:enum
type PopulationScopeType string

const (
	// ScopeNew: only namespaces that are created while the population exists get the manifests.
	ScopeNew PopulationScopeType = "New"
	// ScopeAll: new namespaces and existing namespaces get the manifests.
	ScopeAll PopulationScopeType = "All"
)

// PopulationRolloutType decides what policy-population does in existing namespaces.
// +enum
// +k8s:enum
type PopulationRolloutType string

const (
	// RolloutReport: policy-population reports what Apply would do.
	RolloutReport PopulationRolloutType = "Report"
	// RolloutApply: policy-population applies the changes of the population to a few namespaces
	// at a time.
	RolloutApply PopulationRolloutType = "Apply"
)

// PopulationManifest is the manifest of one object that namespaces get.
type PopulationManifest struct {
	// name identifies the manifest within its population. It must be a DNS label.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// when is a CEL expression that yields true or false. If it yields false, the namespace
	// does not get the object. The expression can use the variables of the template. If when is
	// absent, every selected namespace gets the object.
	// +optional
	When string `json:"when,omitempty" protobuf:"bytes,2,opt,name=when"`

	// driftPolicy decides what happens to the object after the namespace opens. With Ignore,
	// the default, tenants own the object. With Repair, policy-population applies the manifest
	// again when the manifest changes, and when a user changes or deletes the object.
	// +optional
	// +k8s:optional
	DriftPolicy DriftPolicyType `json:"driftPolicy,omitempty" protobuf:"bytes,3,opt,name=driftPolicy,casttype=DriftPolicyType"`

	// prunePolicy decides what happens to the objects when the manifest is removed, or when the
	// population is deleted. With Delete, the default, policy-population deletes the objects.
	// With Orphan, it keeps the objects.
	// +optional
	// +k8s:optional
	PrunePolicy PrunePolicyType `json:"prunePolicy,omitempty" protobuf:"bytes,4,opt,name=prunePolicy,casttype=PrunePolicyType"`

	// template is the object. The strings of the template can contain CEL expressions in
	// ${...}. To write a literal ${, use $${. A string that consists of one expression has the
	// type of its result. The variable namespaceObject is the namespace: its metadata has name,
	// uid, labels and annotations. The variable creator is the name of the user for whom the
	// namespace was created. The variable creatorGroups contains the groups of that user. The
	// variable requester is the name of the user whose request created the namespace. The
	// fields apiVersion, kind and metadata.name are required. The field metadata.namespace is
	// set by nsinit.
	// +required
	// +k8s:opaqueType
	Template runtime.RawExtension `json:"template" protobuf:"bytes,5,opt,name=template"`

	// readyWhen is a CEL expression that yields true or false. A new namespace stays closed
	// until the expression yields true. The expression can use the variables of the template,
	// and object, which is the stored object. While the expression fails, the object is not
	// ready. If readyWhen is absent, the object is ready as soon as it is applied. With and
	// without readyWhen, a ResourceQuota is ready only when its status has every entry of
	// spec.hard. Before that, kube-apiserver does not enforce the quota.
	// +optional
	ReadyWhen string `json:"readyWhen,omitempty" protobuf:"bytes,6,opt,name=readyWhen"`
}

// DriftPolicyType decides what happens to an object after its namespace opens.
// +enum
// +k8s:enum
type DriftPolicyType string

const (
	// DriftIgnore: tenants own the object, and policy-population does not change it.
	DriftIgnore DriftPolicyType = "Ignore"
	// DriftRepair: policy-population keeps the object as its manifest defines it.
	DriftRepair DriftPolicyType = "Repair"
)

// PrunePolicyType decides what happens to an object when its manifest is removed.
// +enum
// +k8s:enum
type PrunePolicyType string

const (
	// PruneDelete: policy-population deletes the object.
	PruneDelete PrunePolicyType = "Delete"
	// PruneOrphan: policy-population keeps the object.
	PruneOrphan PrunePolicyType = "Orphan"
)

// NamespacePopulationStatus shows what policy-population applied, and what it could not apply.
type NamespacePopulationStatus struct {
	// observedGeneration is the generation of the population that the conditions Applied and
	// Ready describe. If these conditions describe different generations, the field has the
	// lower one. The field is absent until policy-population has checked the population.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// conditions are Applied, Ready and, with scope All, RolledOut. Applied is True if every
	// manifest was applied to each namespace that has objects of the population. Ready is True
	// if policy-population can apply every manifest to a new namespace. For this, the cluster
	// must know each kind, and policy-population needs the permission to apply each object. If
	// Ready is not True, its message says what is missing. RolledOut is True if every existing
	// namespace that the population selects has received every object. If RolledOut is False,
	// its reason and message say what is missing, and what to do.
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

	// manifests shows the result of each manifest.
	// +optional
	// +listType=map
	// +listMapKey=name
	Manifests []PopulationManifestStatus `json:"manifests,omitempty" protobuf:"bytes,4,rep,name=manifests"`

	// rollout is the state of the rollout to existing namespaces. It is absent with scope New.
	// +optional
	Rollout *PopulationRolloutStatus `json:"rollout,omitempty" protobuf:"bytes,5,opt,name=rollout"`
}

// PopulationRolloutStatus is the state of the rollout to existing namespaces. With Report, it
// is the report of what Apply would do.
type PopulationRolloutStatus struct {
	// observedGeneration is the generation of the population that the counts describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`

	// namespaces is the number of namespaces in the rollout. The population selects these
	// namespaces, or they have objects to delete. Namespaces that are closed, frozen, being
	// deleted or exempt by name are not in the rollout. Namespaces whose names begin with kube-
	// are also not in the rollout.
	Namespaces int32 `json:"namespaces" protobuf:"varint,2,opt,name=namespaces"`

	// current is the number of namespaces in the rollout that have received every object and
	// change, and have no objects to delete.
	Current int32 `json:"current" protobuf:"varint,3,opt,name=current"`

	// checked is the number of namespaces in the rollout whose objects the other fields count.
	// A namespace is checked when the report or the rollout reaches it, and again after a
	// change.
	Checked int32 `json:"checked" protobuf:"varint,4,opt,name=checked"`

	// toCreate is the number of objects that do not exist and that the rollout would create.
	ToCreate int32 `json:"toCreate" protobuf:"varint,5,opt,name=toCreate"`

	// toChange is the number of objects that policy-population applied before, and that the
	// rollout would now change.
	ToChange int32 `json:"toChange" protobuf:"varint,6,opt,name=toChange"`

	// toDelete is the number of objects that the rollout would delete, because their manifests
	// were removed.
	ToDelete int32 `json:"toDelete" protobuf:"varint,11,opt,name=toDelete"`

	// unchanged is the number of objects that the namespaces have received already, and that
	// stay as they are.
	Unchanged int32 `json:"unchanged" protobuf:"varint,7,opt,name=unchanged"`

	// conflicts is the number of objects that the rollout does not change because of another
	// client. That client owns the object, or set one of its fields to another value.
	Conflicts int32 `json:"conflicts" protobuf:"varint,8,opt,name=conflicts"`

	// refused is the number of objects that policy-population cannot apply or delete. Possible
	// causes are a missing permission, an admission policy or webhook that rejects the object,
	// an unknown kind, and an expression that fails.
	Refused int32 `json:"refused" protobuf:"varint,9,opt,name=refused"`

	// problems lists the first conflicts and refused objects, at most ten, in the order of the
	// names of their namespaces.
	// +optional
	// +listType=atomic
	Problems []PopulationProblem `json:"problems,omitempty" protobuf:"bytes,10,rep,name=problems"`
}

// PopulationProblem describes why policy-population cannot apply or delete an object in an
// existing namespace.
type PopulationProblem struct {
	// namespace is the name of the namespace.
	Namespace string `json:"namespace" protobuf:"bytes,1,opt,name=namespace"`

	// manifest is the name of the manifest.
	Manifest string `json:"manifest" protobuf:"bytes,2,opt,name=manifest"`

	// result is Conflict or Refused.
	Result PopulationProblemType `json:"result" protobuf:"bytes,3,opt,name=result,casttype=PopulationProblemType"`

	// message describes the cause and the next step.
	Message string `json:"message" protobuf:"bytes,4,opt,name=message"`
}

// PopulationProblemType is the type of a PopulationProblem.
// +enum
type PopulationProblemType string

const (
	// ProblemConflict: another client owns the object or one of its fields.
	ProblemConflict PopulationProblemType = "Conflict"
	// ProblemRefused: policy-population cannot apply or delete the object.
	ProblemRefused PopulationProblemType = "Refused"
)

// PopulationManifestStatus shows the result of one manifest in all namespaces.
type PopulationManifestStatus struct {
	// name is the name of the manifest.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// applied is the number of namespaces in which the manifest was applied.
	Applied int32 `json:"applied" protobuf:"varint,2,opt,name=applied"`

	// failed is the number of namespaces in which the manifest could not be applied.
	Failed int32 `json:"failed" protobuf:"varint,3,opt,name=failed"`

	// message is the error in the namespace that the field namespace names.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`

	// namespace is a namespace in which the manifest could not be applied. If there are several,
	// it is the namespace whose name sorts first.
	// +optional
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,5,opt,name=namespace"`
}

// ConditionApplied is True if every manifest was applied. NamespacePopulations and
// PopulatedNamespaces have this condition.
const ConditionApplied = "Applied"

// ConditionRolledOut is True if every existing namespace that the population selects has
// received every object. NamespacePopulations with scope All have this condition.
const ConditionRolledOut = "RolledOut"

const (
	// ReasonRolloutReporting: the report does not include every namespace yet.
	ReasonRolloutReporting = "Reporting"
	// ReasonRolloutReported: the report includes every namespace.
	ReasonRolloutReported = "Reported"
	// ReasonRolloutProgressing: the rollout has not reached every namespace yet.
	ReasonRolloutProgressing = "Progressing"
	// ReasonRolloutPaused: three namespaces refused objects, and a dry run in another namespace
	// failed, too. The rollout does not continue to other namespaces. Fix the cause that the
	// message describes.
	ReasonRolloutPaused = "Paused"
	// ReasonRolloutIncomplete: the rollout has reached every namespace, but some namespaces did
	// not receive every object, or an object cannot be repaired.
	ReasonRolloutIncomplete = "Incomplete"
	// ReasonRolloutComplete: every namespace has received every object. Tenants may have
	// changed or deleted objects whose driftPolicy is Ignore.
	ReasonRolloutComplete = "Complete"
	// ReasonRolloutExemptionsUnknown: policy-population cannot read the list of exemptions, so
	// it changes no namespace. Apply artifacts/deploy again.
	ReasonRolloutExemptionsUnknown = "ExemptionsUnknown"
	// ReasonRolloutNamespacesUnknown: policy-population cannot list the namespaces, so it
	// changes no namespace. Apply artifacts/deploy again.
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
