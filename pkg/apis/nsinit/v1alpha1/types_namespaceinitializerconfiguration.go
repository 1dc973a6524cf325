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
// act on every new namespace, one after the other, before tenants can write
// into it. Configurations are merged in the order of their names; the order
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

	// initializers lists the initializers that act on each new namespace, in
	// the order in which they act. A name that an earlier configuration registers
	// is ignored here. The condition NamesAccepted reports it.
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
	// the initializer. It can be set only with a failurePolicy, and is 5 by
	// default.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,3,opt,name=timeoutSeconds"`

	// finalizer makes this participant act when the namespace is deleted, too:
	// its name is added to spec.finalizers of the NamespaceLifecycle, and the
	// namespace is not removed before the participant has removed its name.
	// +optional
	Finalizer bool `json:"finalizer,omitempty" protobuf:"varint,4,opt,name=finalizer"`
}

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
	// ConditionDrained is False while a deleted configuration waits. The message says what it waits for.
	ConditionDrained = "Drained"
	// ConditionNamesAccepted is False if an initializer of a configuration has no effect, because an earlier
	// configuration registers its name.
	ConditionNamesAccepted = "NamesAccepted"
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

	// conditions are NamesAccepted and, after a deletion, Drained.
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
