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
// +genclient:skipVerbs=deleteCollection
// +genclient:method=Initialize,verb=update,subresource=initialize,input=NamespaceLifecycle,result=NamespaceLifecycle
// +genclient:method=Finalize,verb=update,subresource=finalize,input=NamespaceLifecycle,result=NamespaceLifecycle
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/finalize"
// +k8s:supportsSubresource="/initialize"

// NamespaceLifecycle is the record of one core Namespace, and has its name: which
// initializers the namespace still waits for, and who must clean up before it may
// disappear. nsinit creates and deletes records; users read them.
type NamespaceLifecycle struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the name of the
	// core Namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says which incarnation of the namespace this is, what was planned
	// for it when it was created, and what is still to be done.
	// +optional
	Spec NamespaceLifecycleSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status says where the namespace stands and who is being waited for, since
	// when and why.
	// +optional
	// +k8s:opaqueType
	Status NamespaceLifecycleStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespaceLifecycleSpec is what was planned for a namespace, and what is still
// to be done.
type NamespaceLifecycleSpec struct {
	// namespaceUID is the UID of the core Namespace that this record describes.
	// It is immutable: a namespace that is deleted and created again under the
	// same name gets a record of its own and inherits nothing.
	// +required
	// +k8s:required
	NamespaceUID types.UID `json:"namespaceUID" protobuf:"bytes,1,opt,name=namespaceUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// plan is the list of initializers that was in force when the namespace was
	// created, each with its policies. It never changes, so what happens to
	// this namespace does not depend on configurations that changed since.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Plan []PlannedInitializer `json:"plan,omitempty" protobuf:"bytes,2,rep,name=plan"`

	// initializers tracks the initialization. If nil, the namespace is
	// completely initialized, and that is final: the list never grows again.
	// Otherwise no tenant can write into the namespace. It changes through the
	// initialize subresource only: each initializer removes itself when it has
	// done its work, and only the first one acts.
	// +optional
	// +k8s:optional
	Initializers *NamespaceInitializers `json:"initializers,omitempty" protobuf:"bytes,3,opt,name=initializers"`

	// finalizers lists who must have acted before the record leaves storage, in
	// the order given. The server adds "kubernetes", which nsinit removes once
	// the content of the core Namespace is gone. After creation it changes
	// through the finalize subresource only.
	// +optional
	// +listType=set
	Finalizers []FinalizerName `json:"finalizers,omitempty" protobuf:"bytes,4,rep,name=finalizers,casttype=FinalizerName"`

	// skipped lists the initializers that were dropped from the pending ones
	// without having done their work: at their deadline where their failurePolicy
	// is Ignore, or by an administrator. Through the initialize subresource a name
	// is added in the same request that removes it from pending; none is ever
	// taken away.
	// +optional
	// +listType=set
	// +k8s:optional
	// +k8s:listType=set
	Skipped []string `json:"skipped,omitempty" protobuf:"bytes,5,rep,name=skipped"`
}

// PlannedInitializer is one entry of the plan: an initializer as it was
// registered when the namespace was created.
type PlannedInitializer struct {
	RegisteredInitializer `json:",inline" protobuf:"bytes,1,opt,name=registeredInitializer"`

	// configuration is the NamespaceInitializerConfiguration that registered
	// the initializer. It is absent for the built-in one.
	// +optional
	Configuration *ConfigurationReference `json:"configuration,omitempty" protobuf:"bytes,2,opt,name=configuration"`
}

// ConfigurationReference points to one incarnation of a
// NamespaceInitializerConfiguration.
type ConfigurationReference struct {
	// name is the name of the configuration.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// uid is the UID of the configuration.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// NamespaceInitializers tracks the progress of initialization.
type NamespaceInitializers struct {
	// pending lists the initializers that have not acted yet, in the order in
	// which they act. Only the first one acts, and removes itself when it is
	// done. When the last one is removed, and no failing result is set, the
	// initializers struct becomes nil and the namespace opens.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	Pending []NamespaceInitializer `json:"pending" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,1,rep,name=pending"`

	// result, if it is set with status Failure, ends the initialization without
	// success: the failure is reported, and then the namespace is deleted. Only
	// the first pending initializer may set it, and it cannot be taken back.
	// +optional
	// +k8s:opaqueType
	Result *metav1.Status `json:"result,omitempty" protobuf:"bytes,2,opt,name=result"`

	// turnStartTime is when the first pending initializer became the first, from
	// which its deadline runs. The server sets it, by its own clock.
	// +optional
	// +k8s:opaqueType
	TurnStartTime *metav1.MicroTime `json:"turnStartTime,omitempty" protobuf:"bytes,3,opt,name=turnStartTime"`
}

// NamespaceInitializer is an initializer that has not yet acted.
type NamespaceInitializer struct {
	// name is the name of the initializer that must act on this namespace.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// FinalizerName is the name of a participant that must act before an object may
// disappear.
type FinalizerName string

// FinalizerKubernetes is the finalizer that nsinit itself removes: from a record
// when the content of its namespace is gone, from a configuration when no
// namespace waits for it any more.
const FinalizerKubernetes FinalizerName = "kubernetes"

// NamespaceLifecycleStatus says where a namespace stands.
type NamespaceLifecycleStatus struct {
	// phase is Initializing while initializers are pending, Active once there
	// are none, and Terminating after the record was deleted.
	// +optional
	Phase LifecyclePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=LifecyclePhase"`

	// currentInitializer is the first pending initializer: the one whose turn
	// it is. It is empty when there is none, when the initialization failed and
	// when the record is terminating. Watches can select on it.
	// +optional
	CurrentInitializer string `json:"currentInitializer,omitempty" protobuf:"bytes,2,opt,name=currentInitializer"`

	// initializers tells, for each initializer of the plan, how far it is and
	// what it last said.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []InitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=initializers"`

	// conditions are Initializing, Ready, Stalled once a turn has lasted for
	// long, and OpenedByHand once a user opened the namespace, each with the
	// reason and a message for people.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,4,rep,name=conditions"`
}

// LifecyclePhase is a namespace's place in its life.
// +enum
type LifecyclePhase string

const (
	// LifecycleInitializing namespaces wait for an initializer.
	LifecycleInitializing LifecyclePhase = "Initializing"
	// LifecycleActive namespaces are completely initialized.
	LifecycleActive LifecyclePhase = "Active"
	// LifecycleTerminating namespaces are being deleted.
	LifecycleTerminating LifecyclePhase = "Terminating"
)

const (
	// ConditionInitializing is True while a namespace waits for an initializer
	// and after its initialization failed. It stands on the record and on the
	// core Namespace.
	ConditionInitializing = "Initializing"
	// ConditionReady is True once a namespace is completely initialized. It
	// stands on the record and on the core Namespace. On a NamespacePopulation, it
	// is True if every manifest could be applied to a new namespace.
	ConditionReady = "Ready"
	// ConditionStalled is True while an initializer has had its turn for longer
	// than the installation finds usual. It stands on the record and on the core
	// Namespace, and is absent where no turn ever lasted that long.
	ConditionStalled = "Stalled"
	// ConditionOpenedByHand is True once a namespace was opened by a user before
	// its initializers were done. It stands on the record, says who it was and
	// which initializers were skipped, and is absent otherwise.
	ConditionOpenedByHand = "OpenedByHand"
	// ConditionFailing is True while nsinit-controller-manager fails to take the
	// next step for a namespace, and retries. It is on the core Namespace only,
	// and absent where that never lasted for long.
	ConditionFailing = "Failing"
)

const (
	// ReasonPending: initializers are pending.
	ReasonPending = "InitializersPending"
	// ReasonInitialized: every initializer is done.
	ReasonInitialized = "Initialized"
	// ReasonAdopted: the namespace was open before nsinit knew it.
	ReasonAdopted = "Adopted"
	// ReasonFailed: an initializer set a failing result.
	ReasonFailed = "InitializationFailed"
	// ReasonOpenedByHand: a user removed the label of the namespace before its
	// initializers were done.
	ReasonOpenedByHand = "OpenedByHand"
	// ReasonLabelRemoved: the label of the namespace was removed by a user.
	ReasonLabelRemoved = "LabelRemoved"
	// ReasonTerminating: the namespace is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonFormerIncarnation: the record of a deleted namespace of the same
	// name is not gone yet.
	ReasonFormerIncarnation = "FormerIncarnation"
	// ReasonNoRecord: nsinit could not create the namespace's NamespaceLifecycle
	// yet, or cannot read it.
	ReasonNoRecord = "RecordNotCreated"
	// ReasonTurnTooLong: an initializer has had its turn for longer than usual.
	ReasonTurnTooLong = "TurnTooLong"
	// ReasonTurnEnded: the turn that had lasted for long is over.
	ReasonTurnEnded = "TurnEnded"
	// ReasonReadFailed: nsinit-controller-manager cannot read what it needs to
	// decide on the next step. Where a step itself fails, the reason is its name
	// and "Failed", such as DeleteRecordFailed.
	ReasonReadFailed = "ReadFailed"
	// ReasonStepTaken: the step that had failed succeeded.
	ReasonStepTaken = "StepTaken"
)

// InitializerStatus tells how far one initializer of the plan is.
type InitializerStatus struct {
	// name is the name of the initializer.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// state is Waiting for its turn, Running, Done, Skipped, or Failed.
	// +optional
	State InitializerState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=InitializerState"`

	// startTime is when the initializer became the first that is pending.
	// +optional
	// +k8s:opaqueType
	StartTime *metav1.MicroTime `json:"startTime,omitempty" protobuf:"bytes,3,opt,name=startTime"`

	// endTime is when the initializer was removed, or failed.
	// +optional
	// +k8s:opaqueType
	EndTime *metav1.MicroTime `json:"endTime,omitempty" protobuf:"bytes,4,opt,name=endTime"`

	// deadline is when the failurePolicy takes effect. It is informative: what
	// counts are the plan and the server's clock.
	// +optional
	// +k8s:opaqueType
	Deadline *metav1.MicroTime `json:"deadline,omitempty" protobuf:"bytes,5,opt,name=deadline"`

	// message is what the initializer last reported. An initializer writes it
	// through the status subresource without losing its turn.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,6,opt,name=message"`

	// lastActor is the user that last changed this entry.
	// +optional
	LastActor string `json:"lastActor,omitempty" protobuf:"bytes,7,opt,name=lastActor"`
}

// InitializerState is how far one initializer is.
// +enum
type InitializerState string

const (
	// InitializerWaiting initializers have others before them.
	InitializerWaiting InitializerState = "Waiting"
	// InitializerRunning is the state of the first pending initializer.
	InitializerRunning InitializerState = "Running"
	// InitializerDone initializers have removed themselves.
	InitializerDone InitializerState = "Done"
	// InitializerSkipped initializers were dropped at their deadline, or by an
	// administrator.
	InitializerSkipped InitializerState = "Skipped"
	// InitializerFailed initializers have set a failing result.
	InitializerFailed InitializerState = "Failed"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycleList is a list of records.
type NamespaceLifecycleList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of records.
	Items []NamespaceLifecycle `json:"items" protobuf:"bytes,2,rep,name=items"`
}
