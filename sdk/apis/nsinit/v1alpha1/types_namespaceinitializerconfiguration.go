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

// NamespaceInitializerConfiguration registers initializers. An initializer is a program or a
// person that prepares a new namespace before tenants can write into it. By default,
// initializers act on every new namespace, one after the other. The configurations are merged
// in the order of their names, and the order within each configuration is kept. A namespace
// gets its plan when it is created. Later changes of configurations do not affect the plan.
type NamespaceInitializerConfiguration struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name decides the order in
	// which configurations are merged.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// initializers lists the initializers that act on new namespaces, at most 64. They act in
	// this order unless the field ordering changes the order. An entry has no effect if an
	// earlier configuration registers the same name for all namespaces. The condition
	// NamesAccepted reports such an entry.
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

	// status shows what nsinit observed about this configuration.
	// +optional
	// +k8s:opaqueType
	Status NamespaceInitializerConfigurationStatus `json:"status,omitempty" protobuf:"bytes,4,opt,name=status"`
}

// RegisteredInitializer is one initializer of a configuration.
type RegisteredInitializer struct {
	// name identifies the initializer. It must be fully qualified. One form is a domain name of
	// at least three parts, such as alwayspullimages.kubernetes.io. The other form is a name
	// with a domain as its prefix, such as openshift.com/origin.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// failurePolicy decides what happens if the initializer has not removed itself by its
	// deadline. If the field is absent, the namespace waits indefinitely. With Ignore, nsinit
	// skips the initializer, and the next initializer has its turn. With Fail, the
	// initialization fails, and nsinit deletes the namespace.
	// +optional
	// +k8s:optional
	FailurePolicy *FailurePolicyType `json:"failurePolicy,omitempty" protobuf:"bytes,2,opt,name=failurePolicy,casttype=FailurePolicyType"`

	// timeoutSeconds is the deadline in seconds after the start of the initializer's turn. The
	// minimum is 1. It can be set only together with failurePolicy. If failurePolicy is set,
	// the default is 5.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,3,opt,name=timeoutSeconds"`

	// finalizer: true makes the initializer a participant: it acts again when the namespace is
	// deleted. nsinit adds its name to spec.finalizers of the NamespaceLifecycle. The namespace
	// is not removed until the participant has removed this name.
	// +optional
	Finalizer bool `json:"finalizer,omitempty" protobuf:"varint,4,opt,name=finalizer"`

	// matchConditions select namespaces. The initializer is in the plan of a namespace only if
	// every expression yields true. There can be at most 16 expressions. nsinit evaluates them
	// once, when it makes the plan. An expression that fails counts as true, and the condition
	// PlanDegraded of the NamespaceLifecycle reports the error.
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

	// namespaceSelector selects namespaces by the labels that they have when nsinit makes the
	// plan. If it is absent or empty, it selects all namespaces. The user who creates a
	// namespace chooses its labels. If users must not decide which initializers act, use
	// matchConditions on the name or the creator.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,6,opt,name=namespaceSelector"`

	// ordering decides which initializers act before this initializer. If it is absent, all
	// initializers that precede this one in the plan act first. With an empty ordering, this
	// initializer acts immediately.
	// +optional
	// +k8s:optional
	Ordering *InitializerOrdering `json:"ordering,omitempty" protobuf:"bytes,7,opt,name=ordering"`

	// activation decides when new namespaces begin to wait for the initializer. With Always,
	// the default, they wait as soon as the initializer is registered. With WhenServed, they
	// wait once a program has reported that it serves the initializer.
	// +optional
	// +k8s:optional
	Activation *ActivationPolicy `json:"activation,omitempty" protobuf:"bytes,8,opt,name=activation,casttype=ActivationPolicy"`

	// holds says what Kubernetes must keep until this participant has cleaned up. It can be set
	// only with finalizer: true. If it is absent, Kubernetes can delete the objects in the
	// namespace before the participant has cleaned up. With Content, Kubernetes deletes the
	// objects only after the participant has removed its name from spec.finalizers of the
	// NamespaceLifecycle.
	// +optional
	// +k8s:optional
	Holds *HoldPolicy `json:"holds,omitempty" protobuf:"bytes,9,opt,name=holds,casttype=HoldPolicy"`
}

// MatchCondition is a condition that a namespace must meet.
type MatchCondition struct {
	// name identifies the condition in messages. Examples are team-a and example.com/team-a.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// expression is a CEL expression that yields true or false. The variable namespaceObject is
	// the namespace: its metadata has name, uid, labels and annotations. The variable creator
	// is the name of the user for whom the namespace was created. The variable creatorGroups
	// contains the groups of that user. The variable requester is the name of the user whose
	// request created the namespace.
	// +required
	// +k8s:required
	Expression string `json:"expression" protobuf:"bytes,2,opt,name=expression"`
}

// InitializerOrdering decides which other initializers act before an initializer.
type InitializerOrdering struct {
	// after lists the initializers that must be done or skipped before this initializer acts,
	// at most 64. A name that is not in the plan of a namespace has no effect in that
	// namespace.
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
	// ActivationAlways: new namespaces wait for the initializer as soon as it is registered.
	ActivationAlways ActivationPolicy = "Always"
	// ActivationWhenServed: new namespaces wait for the initializer once a program has reported
	// that it serves the initializer.
	ActivationWhenServed ActivationPolicy = "WhenServed"
)

// HoldPolicy says what Kubernetes must keep until a participant has cleaned up.
// +enum
// +k8s:enum
type HoldPolicy string

const (
	// HoldContent: Kubernetes keeps the objects in the namespace until the participant has
	// cleaned up.
	HoldContent HoldPolicy = "Content"
)

// FailurePolicyType decides what happens to a namespace if an initializer misses its deadline.
// +enum
// +k8s:enum
type FailurePolicyType string

const (
	// Ignore: nsinit skips the initializer at its deadline.
	Ignore FailurePolicyType = "Ignore"
	// Fail: the initialization of the namespace fails at the deadline, and nsinit deletes the
	// namespace.
	Fail FailurePolicyType = "Fail"
)

const (
	// ConditionDrained is False while a deleted configuration is still in storage. The message
	// says what the configuration waits for.
	ConditionDrained = "Drained"
	// ConditionNamesAccepted is False if an earlier configuration registers an initializer of
	// the same name for all namespaces. The later entry then has no effect.
	ConditionNamesAccepted = "NamesAccepted"
	// ConditionServed is True while a program reports that it serves the initializer. It is
	// False if the last report is more than a minute old, and Unknown before the first report.
	// Each entry of status.initializers has this condition.
	ConditionServed = "Served"
)

const (
	// ReasonReported: a program reports that it serves the initializer.
	ReasonReported = "Reported"
	// ReasonReportOverdue: the last report that a program serves the initializer is more than a
	// minute old.
	ReasonReportOverdue = "ReportOverdue"
	// ReasonNeverReported: no program has ever reported that it serves the initializer.
	ReasonNeverReported = "NeverReported"
)

// DefaultTimeoutSeconds is the deadline of an initializer that has a
// failurePolicy and no timeoutSeconds.
const DefaultTimeoutSeconds int32 = 5

// NamespaceInitializerConfigurationSpec holds the finalizers of a configuration.
type NamespaceInitializerConfigurationSpec struct {
	// finalizers lists the participants that must act before the configuration is removed from
	// storage. The server adds the name "kubernetes", and nsinit removes this name once no
	// namespace waits for the initializers of the configuration. After creation, only requests
	// to the finalize subresource can change the list.
	// +optional
	// +listType=set
	Finalizers []FinalizerName `json:"finalizers,omitempty" protobuf:"bytes,1,rep,name=finalizers,casttype=FinalizerName"`
}

// NamespaceInitializerConfigurationStatus shows what nsinit observed about a configuration.
type NamespaceInitializerConfigurationStatus struct {
	// phase is Active until the configuration is deleted, and then Terminating.
	// +optional
	Phase ConfigurationPhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=ConfigurationPhase"`

	// conditions are Ready, NamesAccepted and, after the configuration is deleted, Drained.
	// Ready is True if every initializer has an effect on new namespaces, and no program has
	// stopped reporting that it serves an initializer. Stalled is True if the configuration
	// cannot become ready before a user changes a configuration. Otherwise, Stalled is absent.
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

	// initializers shows, for each initializer, whether a program serves it.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []RegisteredInitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,4,rep,name=initializers"`

	// observedGeneration is the generation of the configuration that the conditions
	// NamesAccepted and Ready describe. It is absent until nsinit-controller-manager has read
	// the configuration.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,5,opt,name=observedGeneration"`
}

// RegisteredInitializerStatus shows whether a program serves one initializer of a
// configuration.
type RegisteredInitializerStatus struct {
	// name is the name of the initializer.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// reportTime is the time at which a program last reported that it serves the initializer.
	// The program writes this field every 20 seconds, through the status subresource.
	// nsinit-apiserver replaces the value with its own time.
	// +optional
	// +k8s:opaqueType
	ReportTime *metav1.MicroTime `json:"reportTime,omitempty" protobuf:"bytes,2,opt,name=reportTime"`

	// reporter is the user who sent the last report. nsinit-apiserver sets this field.
	// +optional
	Reporter string `json:"reporter,omitempty" protobuf:"bytes,3,opt,name=reporter"`

	// conditions contains the condition Served. Served is True while a program reports that it
	// serves the initializer. It is False if the last report is more than a minute old, and
	// Unknown before the first report.
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
	// ConfigurationActive: the configuration applies to new namespaces.
	ConfigurationActive ConfigurationPhase = "Active"
	// ConfigurationTerminating: the configuration was deleted, and does not apply to new
	// namespaces. nsinit removes the configuration once no namespace waits for its
	// initializers.
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
