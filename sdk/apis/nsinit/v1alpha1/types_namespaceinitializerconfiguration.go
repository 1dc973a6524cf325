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
// +genclient:skipVerbs=deleteCollection
// +genclient:method=Finalize,verb=update,subresource=finalize,input=NamespaceInitializerConfiguration,result=NamespaceInitializerConfiguration
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/finalize"

// NamespaceInitializerConfiguration registers initializers: processes that must
// act on new namespaces, by default on all and one after the other, before tenants
// can write into them. Configurations are merged in the order of their names; the order
// within each is kept. A namespace gets its plan when it is created, so a
// change applies only to namespaces that are created after it.
type NamespaceInitializerConfiguration struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name decides the order in
	// which configurations are merged.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// initializers lists the initializers that act on new namespaces, at most 64.
	// Where ordering does not say otherwise, they act in this order. A name that an
	// earlier configuration registers for all namespaces is ignored here. The condition
	// NamesAccepted reports it.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=64
	Initializers []RegisteredInitializer `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=initializers"`

	// spec holds the finalizers of this configuration.
	// +optional
	Spec NamespaceInitializerConfigurationSpec `json:"spec,omitempty" protobuf:"bytes,3,opt,name=spec"`

	// status is what nsinit observed of this configuration.
	// +optional
	// +k8s:opaqueType
	Status NamespaceInitializerConfigurationStatus `json:"status,omitempty" protobuf:"bytes,4,opt,name=status"`
}

// RegisteredInitializer is one initializer of a configuration.
type RegisteredInitializer struct {
	// name identifies the initializer. It must be fully qualified: either a
	// domain name of three or more parts, such as
	// alwayspullimages.kubernetes.io, or a name prefixed with a domain, such as
	// openshift.com/origin.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// failurePolicy is what happens when the initializer has not removed itself
	// by its deadline. Absent: the namespace waits indefinitely. Ignore: the
	// initializer is skipped and the next one has its turn. Fail: the
	// initialization fails, and the namespace is deleted.
	// +optional
	// +k8s:optional
	FailurePolicy *FailurePolicyType `json:"failurePolicy,omitempty" protobuf:"bytes,2,opt,name=failurePolicy,casttype=FailurePolicyType"`

	// timeoutSeconds is the deadline, in seconds from the start of the turn of
	// the initializer: at least 1. It can be set only with a failurePolicy, and is then
	// 5 by default.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,3,opt,name=timeoutSeconds"`

	// finalizer: true makes this participant act again when the namespace is deleted.
	// Its name is added to spec.finalizers of the NamespaceLifecycle, and the
	// namespace is not removed before the participant has removed its name.
	// +optional
	Finalizer bool `json:"finalizer,omitempty" protobuf:"varint,4,opt,name=finalizer"`

	// matchConditions select namespaces: the initializer is in the plan of a
	// namespace only if every expression yields true. There can be at most 16. They
	// are evaluated once, when the plan is made. An expression that fails then counts as true, and the
	// condition PlanDegraded of the NamespaceLifecycle reports it.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=16
	MatchConditions []MatchCondition `json:"matchConditions,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,5,rep,name=matchConditions"`

	// namespaceSelector selects namespaces by the labels that they have when the
	// plan is made. Absent or empty: all namespaces. The user who creates a namespace
	// chooses its labels, so use matchConditions on the name or the creator where
	// users must not decide.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,6,opt,name=namespaceSelector"`

	// ordering decides which initializers act before this one. Absent: all that come
	// before it in the plan. An empty ordering: none, so it acts immediately.
	// +optional
	// +k8s:optional
	Ordering *InitializerOrdering `json:"ordering,omitempty" protobuf:"bytes,7,opt,name=ordering"`

	// activation decides when new namespaces begin to wait for the initializer.
	// Absent or Always: as soon as it is registered. WhenServed: once a program has
	// reported that it serves the initializer.
	// +optional
	// +k8s:optional
	Activation *ActivationPolicy `json:"activation,omitempty" protobuf:"bytes,8,opt,name=activation,casttype=ActivationPolicy"`

	// holds is what this participant needs until it has cleaned up. Absent: only the
	// namespace. Content: also the objects in the namespace. Kubernetes then deletes them
	// after the participant has removed its name from spec.finalizers of the
	// NamespaceLifecycle. It can be set only with finalizer: true.
	// +optional
	// +k8s:optional
	Holds *HoldPolicy `json:"holds,omitempty" protobuf:"bytes,9,opt,name=holds,casttype=HoldPolicy"`
}

// MatchCondition is one condition that a namespace must fulfil.
type MatchCondition struct {
	// name identifies the condition in messages, such as team-a or
	// example.com/team-a.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// expression is a CEL expression that yields true or false. It can use
	// namespaceObject (its metadata has name, uid, labels and annotations), creator
	// (the name of the user who created the namespace, or on behalf of whom it was
	// created), creatorGroups (the groups of that user) and requester (the name of
	// the user whose request created it).
	// +required
	// +k8s:required
	Expression string `json:"expression" protobuf:"bytes,2,opt,name=expression"`
}

// InitializerOrdering decides which initializers act before another one.
type InitializerOrdering struct {
	// after names the initializers that must be done or skipped before this one acts,
	// at most 64. Names that are not in the plan of a namespace have no effect there.
	// +optional
	// +listType=set
	// +k8s:optional
	// +k8s:listType=set
	// +k8s:maxItems=64
	After []string `json:"after,omitempty" protobuf:"bytes,1,rep,name=after"`
}

// ActivationPolicy decides when new namespaces begin to wait for an initializer.
// +enum
// +k8s:enum
type ActivationPolicy string

const (
	// ActivationAlways initializers are in the plans from their registration on.
	ActivationAlways ActivationPolicy = "Always"
	// ActivationWhenServed initializers are in no plan before a program has reported
	// that it serves them.
	ActivationWhenServed ActivationPolicy = "WhenServed"
)

// HoldPolicy is what a participant needs until it has cleaned up.
// +enum
// +k8s:enum
type HoldPolicy string

const (
	// HoldContent participants need the objects in the namespace.
	HoldContent HoldPolicy = "Content"
)

// FailurePolicyType is what happens to a namespace whose initializer misses its
// deadline.
// +enum
// +k8s:enum
type FailurePolicyType string

const (
	// Ignore skips the initializer at its deadline.
	Ignore FailurePolicyType = "Ignore"
	// Fail fails the namespace's initialization at the deadline.
	Fail FailurePolicyType = "Fail"
)

const (
	// ConditionDrained is False while a deleted configuration is not removed. The message says what it waits for.
	ConditionDrained = "Drained"
	// ConditionNamesAccepted is False if an initializer of a configuration has no effect, because an earlier
	// configuration registers its name.
	ConditionNamesAccepted = "NamesAccepted"
	// ConditionServed is True while a program reports that it serves the initializer, False if the last report is
	// too old, and Unknown before the first one. Each initializer in the status has it.
	ConditionServed = "Served"
)

const (
	// ReasonReported: a program reported that it serves the initializer.
	ReasonReported = "Reported"
	// ReasonReportOverdue: no program has reported for longer than usual.
	ReasonReportOverdue = "ReportOverdue"
	// ReasonNeverReported: no program has ever reported.
	ReasonNeverReported = "NeverReported"
)

// DefaultTimeoutSeconds is the deadline of an initializer that has a
// failurePolicy and no timeoutSeconds.
const DefaultTimeoutSeconds int32 = 5

// NamespaceInitializerConfigurationSpec holds the finalizers of a configuration.
type NamespaceInitializerConfigurationSpec struct {
	// finalizers lists the participants that must act before the configuration is
	// removed from storage. The server adds "kubernetes", which nsinit removes once
	// no namespace waits for the initializers of the configuration. After creation,
	// only the finalize subresource changes the list.
	// +optional
	// +listType=set
	Finalizers []FinalizerName `json:"finalizers,omitempty" protobuf:"bytes,1,rep,name=finalizers,casttype=FinalizerName"`
}

// NamespaceInitializerConfigurationStatus is what nsinit observed of a
// configuration.
type NamespaceInitializerConfigurationStatus struct {
	// phase is Active, or Terminating after the configuration was deleted.
	// +optional
	Phase ConfigurationPhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=ConfigurationPhase"`

	// conditions are Ready, NamesAccepted and, after a deletion, Drained. Ready is True
	// if every initializer has an effect on new namespaces, and no program that served
	// one has stopped reporting. Stalled is True, and otherwise absent, if the
	// configuration cannot become ready before a user changes it or another one.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`

	// pendingNamespaces is the number of namespaces that wait for an
	// initializer of this configuration.
	// +optional
	PendingNamespaces int32 `json:"pendingNamespaces,omitempty" protobuf:"varint,3,opt,name=pendingNamespaces"`

	// initializers shows whether a program serves each of the initializers.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []RegisteredInitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,4,rep,name=initializers"`

	// observedGeneration is the generation that the conditions NamesAccepted and Ready
	// describe. It is absent until nsinit-controller-manager has read the configuration.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,5,opt,name=observedGeneration"`
}

// RegisteredInitializerStatus is what nsinit observed of one initializer of a
// configuration.
type RegisteredInitializerStatus struct {
	// name is the name of the initializer.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// reportTime is when a program last reported that it serves the initializer.
	// The program writes it through the status subresource, and repeats it every 20
	// seconds. The server replaces it with its own time.
	// +optional
	// +k8s:opaqueType
	ReportTime *metav1.MicroTime `json:"reportTime,omitempty" protobuf:"bytes,2,opt,name=reportTime"`

	// reporter is the user that last reported. The server sets it.
	// +optional
	Reporter string `json:"reporter,omitempty" protobuf:"bytes,3,opt,name=reporter"`

	// conditions has the condition Served: True while a program reports that it serves
	// the initializer, False if the last report is too old, and Unknown before the
	// first one.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,4,rep,name=conditions"`
}

// ConfigurationPhase is the phase of a configuration.
// +enum
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
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of configurations.
	Items []NamespaceInitializerConfiguration `json:"items" protobuf:"bytes,2,rep,name=items"`
}
