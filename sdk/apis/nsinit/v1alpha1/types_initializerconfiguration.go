/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// InitializerConfiguration registers initializers for pods and Jobs. An initializer is a program
// or a person that acts on a new pod or Job before it runs. The configurations are merged in the
// order of their names, and the order within each configuration is kept. The kind needs
// Kubernetes 1.36 and the component objects of nsinit.
type InitializerConfiguration struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name decides the order in
	// which configurations are merged.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// initializers lists the initializers that act on new pods and Jobs, at most 32. They act
	// one after the other, in this order.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=32
	Initializers []Initializer `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=initializers"`

	// status shows what nsinit observed about this configuration.
	// +optional
	// +k8s:opaqueType
	Status InitializerConfigurationStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// Initializer is one initializer of an InitializerConfiguration.
type Initializer struct {
	// name identifies the initializer. It must be a domain name of at least three parts, such as
	// scan.example.com, with at most 63 characters.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// rules decide which resources the initializer acts on. It acts on an object that at least
	// one rule matches. Without rules, it acts on no object. There can be at most 16 rules.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=16
	Rules []Rule `json:"rules,omitempty" protobuf:"bytes,2,rep,name=rules"`

	// failurePolicy decides what happens if the initializer has not removed itself by its
	// deadline. If the field is absent, the object waits indefinitely. With Ignore, nsinit skips
	// the initializer. With Fail, nsinit deletes the pod, or lets the Job fail.
	// +optional
	// +k8s:optional
	FailurePolicy *FailurePolicyType `json:"failurePolicy,omitempty" protobuf:"bytes,3,opt,name=failurePolicy,casttype=FailurePolicyType"`

	// timeoutSeconds is the deadline in seconds after the creation of the object. The minimum is
	// 1. It can be set only together with failurePolicy. If failurePolicy is set, the default
	// is 5.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" protobuf:"varint,4,opt,name=timeoutSeconds"`

	// matchConditions select objects by their namespace. The initializer acts on an object only
	// if every expression yields true for the namespace of the object. There can be at most 16
	// expressions. If an expression fails, kube-apiserver rejects the object.
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

	// namespaceSelector selects objects by the labels of their namespace. If it is absent or
	// empty, it selects all namespaces.
	// +optional
	// +k8s:opaqueType
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,6,opt,name=namespaceSelector"`

	// activation decides when new objects begin to wait for the initializer. With Always, the
	// default, they wait as soon as the initializer is registered. With WhenServed, they wait
	// once a program has reported that it serves the initializer.
	// +optional
	// +k8s:optional
	Activation *ActivationPolicy `json:"activation,omitempty" protobuf:"bytes,7,opt,name=activation,casttype=ActivationPolicy"`
}

// Rule selects resources by their group, version and name. nsinit supports pods and Jobs.
type Rule struct {
	// apiGroups are the API groups: "" for pods, batch for Jobs. The value * means all groups,
	// and must be the only item.
	// +required
	// +listType=atomic
	APIGroups []string `json:"apiGroups,omitempty" protobuf:"bytes,1,rep,name=apiGroups"`

	// apiVersions are the API versions. The only version of pods and Jobs is v1. The value *
	// means all versions, and must be the only item.
	// +required
	// +listType=atomic
	APIVersions []string `json:"apiVersions,omitempty" protobuf:"bytes,2,rep,name=apiVersions"`

	// resources are the resources: pods or jobs. nsinit refuses every other resource,
	// subresource and wildcard.
	// +required
	// +listType=atomic
	Resources []string `json:"resources,omitempty" protobuf:"bytes,3,rep,name=resources"`
}

// InitializerConfigurationStatus shows what nsinit observed about an InitializerConfiguration.
type InitializerConfigurationStatus struct {
	// conditions are InForce and Ready, which have the same status. They are True after
	// kube-apiserver was observed to hold new objects as this configuration says.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,1,rep,name=conditions"`

	// pendingObjects is the number of pods and Jobs that wait for an initializer of this
	// configuration.
	// +optional
	PendingObjects int32 `json:"pendingObjects,omitempty" protobuf:"varint,2,opt,name=pendingObjects"`

	// initializers shows, for each initializer, whether a program serves it.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []RegisteredInitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=initializers"`

	// observedGeneration is the generation of the configuration that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,4,opt,name=observedGeneration"`
}

// ConditionInForce is True after kube-apiserver was observed to hold new pods and Jobs as an
// InitializerConfiguration says.
const ConditionInForce = "InForce"

// PendingPrefix begins the names of the scheduling gates of pods, and of the labels of Jobs, that
// wait for an initializer. The rest is the name of the initializer. The value of the label of a Job
// is the position in the order, from 0.
const PendingPrefix = "initializers.nsinit.dev/"

// AnnotationSuspend marks a Job whose creator set spec.suspend. The Job stays suspended after its
// initializers are done.
const AnnotationSuspend = "initializers.nsinit.dev/suspend"

// HeldResources returns the API groups of the resources for which initializers can be registered.
func HeldResources() map[string]string { return map[string]string{"pods": "", "jobs": "batch"} }

// Matches reports whether a rule of the initializer matches a resource of HeldResources.
func (i *Initializer) Matches(resource string) bool {
	return slices.ContainsFunc(i.Rules, func(rule Rule) bool {
		group, held := HeldResources()[resource]
		return held && slices.Contains(rule.Resources, resource) && (slices.Contains(rule.APIGroups, group) || slices.Contains(rule.APIGroups, "*"))
	})
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// InitializerConfigurationList is a list of InitializerConfigurations.
type InitializerConfigurationList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of configurations.
	Items []InitializerConfiguration `json:"items" protobuf:"bytes,2,rep,name=items"`
}
