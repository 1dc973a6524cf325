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

// NamespaceLifecycle describes the core Namespace of the same name. It shows which initializers
// the namespace still waits for, and which participants must clean up before the namespace is
// removed. nsinit creates and deletes NamespaceLifecycles. Users read them.
type NamespaceLifecycle struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the name of the
	// core Namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec holds the UID of the namespace, its plan, and the work that remains. nsinit makes
	// the plan when the namespace is created.
	// +optional
	Spec NamespaceLifecycleSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status shows the progress of the namespace: which initializers the namespace waits for,
	// since when and why.
	// +optional
	// +k8s:opaqueType
	Status NamespaceLifecycleStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespaceLifecycleSpec holds the plan of a namespace and the work that remains.
type NamespaceLifecycleSpec struct {
	// namespaceUID is the UID of the core Namespace. It is immutable. A later namespace of the
	// same name gets a new NamespaceLifecycle, and inherits nothing from this one.
	// +required
	// +k8s:required
	NamespaceUID types.UID `json:"namespaceUID" protobuf:"bytes,1,opt,name=namespaceUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// plan lists the initializers of this namespace and their policies, as they were registered
	// when the namespace was created. The plan never changes. Later changes of configurations
	// do not affect this namespace.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Plan []PlannedInitializer `json:"plan,omitempty" protobuf:"bytes,2,rep,name=plan"`

	// initializers tracks the initialization. If the field is absent, the namespace is completely
	// initialized, and the field stays absent. If the field is present, no tenant can write into
	// the namespace. Only requests to the initialize subresource change the field. Each
	// initializer removes itself when its work is done.
	// +optional
	// +k8s:optional
	Initializers *NamespaceInitializers `json:"initializers,omitempty" protobuf:"bytes,3,opt,name=initializers"`

	// finalizers lists the participants that must act before the NamespaceLifecycle is removed
	// from storage. The server adds the name "kubernetes", and nsinit removes this name once
	// the content of the core Namespace is deleted. After creation, only requests to the
	// finalize subresource can change the list.
	// +optional
	// +listType=set
	Finalizers []FinalizerName `json:"finalizers,omitempty" protobuf:"bytes,4,rep,name=finalizers,casttype=FinalizerName"`

	// skipped lists the initializers that were removed from pending before their work was done.
	// An initializer with the failurePolicy Ignore is skipped at its deadline. An administrator
	// can also skip initializers. One request to the initialize subresource removes a name from
	// pending and adds the name here. Names stay in skipped.
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

	// configuration is the NamespaceInitializerConfiguration that registered the initializer.
	// It is absent for the built-in initializer.
	// +optional
	Configuration *ConfigurationReference `json:"configuration,omitempty" protobuf:"bytes,2,opt,name=configuration"`
}

// ConfigurationReference points to a NamespaceInitializerConfiguration.
type ConfigurationReference struct {
	// name is the name of the configuration.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// uid is the UID of the configuration. A later configuration of the same name has another
	// UID.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// NamespaceInitializers tracks the progress of initialization.
type NamespaceInitializers struct {
	// pending lists the initializers that have not finished, in the order of the plan.
	// Initializers that wait for no other pending initializer act at the same time. Each
	// initializer removes itself when it is done. When the last initializer is removed and no
	// result is set, nsinit removes spec.initializers, and the namespace opens.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	Pending []NamespaceInitializer `json:"pending" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,1,rep,name=pending"`

	// result with status Failure ends the initialization. nsinit reports the failure and then
	// deletes the namespace. A client can set a result only for an initializer that has its turn.
	// A result never changes.
	// +optional
	// +k8s:opaqueType
	Result *metav1.Status `json:"result,omitempty" protobuf:"bytes,2,opt,name=result"`

	// failedInitializer is the name of the initializer that failed. The request that sets
	// result can omit this name if only one initializer has its turn.
	// +optional
	// +k8s:optional
	FailedInitializer string `json:"failedInitializer,omitempty" protobuf:"bytes,3,opt,name=failedInitializer"`
}

// NamespaceInitializer is an initializer that has not finished.
type NamespaceInitializer struct {
	// name is the name of the initializer that must act on this namespace.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// FinalizerName is the name of a participant that must act before an object can be
// removed.
type FinalizerName string

const (
	// FinalizerKubernetes: nsinit removes this finalizer itself. A NamespaceLifecycle has it
	// until the content of the namespace is deleted. A NamespaceInitializerConfiguration has it
	// until no namespace waits for its initializers.
	FinalizerKubernetes FinalizerName = "kubernetes"
)

// NamespaceLifecycleStatus shows the progress of a namespace.
type NamespaceLifecycleStatus struct {
	// phase is Initializing while initializers are pending, and Active when none is pending.
	// The phase is Terminating once the NamespaceLifecycle is deleted.
	// +optional
	Phase LifecyclePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=LifecyclePhase"`

	// currentInitializers lists the initializers that have their turn, in the order of the
	// plan. The list is empty if no initializer has its turn, if the initialization failed, and
	// if the NamespaceLifecycle is being deleted. The field selector
	// status.currentInitializer=NAME selects the namespaces in which NAME has its turn.
	// +optional
	// +listType=set
	CurrentInitializers []string `json:"currentInitializers,omitempty" protobuf:"bytes,2,rep,name=currentInitializers"`

	// initializers shows the progress and the last message of each initializer of the plan.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []InitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=initializers"`

	// conditions always include Initializing and Ready. Stalled is added when a turn or a
	// cleanup lasts longer than --stalled-after, or when the initialization fails. OpenedByHand
	// is added when a user opens the namespace by hand. PlanDegraded is added if the plan
	// differs from what the configurations say.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:opaqueType
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,4,rep,name=conditions"`
}

// LifecyclePhase is the phase of a namespace.
// +enum
type LifecyclePhase string

const (
	// LifecycleInitializing: the namespace is waiting for initializers.
	LifecycleInitializing LifecyclePhase = "Initializing"
	// LifecycleActive: the namespace is completely initialized.
	LifecycleActive LifecyclePhase = "Active"
	// LifecycleTerminating: the namespace is being deleted.
	LifecycleTerminating LifecyclePhase = "Terminating"
)

const (
	// ConditionInitializing is True while a namespace waits for an initializer, and after the
	// initialization failed. On the core Namespace, it is also True while required objects are
	// missing.
	ConditionInitializing = "Initializing"
	// ConditionReady is True once a namespace is completely initialized. The other kinds of
	// nsinit also have the condition Ready. On those kinds, Ready is Unknown until nsinit has
	// read a new object, and False while the object does not have its effect.
	ConditionReady = "Ready"
	// ConditionStalled is True while a turn, or the cleanup of a participant, lasts longer than
	// --stalled-after of nsinit-controller-manager. It is also True after the initialization
	// failed. It is absent if neither has happened. A NamespaceInitializerConfiguration has
	// Stalled only while it cannot become ready without a change by a user. Tools such as Flux
	// and Helm stop waiting and report a failure when Stalled is True.
	ConditionStalled = "Stalled"
	// ConditionOpenedByHand is True after a user opened a namespace before its initializers
	// were done. Otherwise, it is absent. Only the NamespaceLifecycle has this condition. The
	// message names the user and the skipped initializers.
	ConditionOpenedByHand = "OpenedByHand"
	// ConditionPlanDegraded is True if the plan differs from what the configurations say: an
	// expression failed and counted as true, or initializers wait for each other. Otherwise, it
	// is absent. Only the NamespaceLifecycle has this condition.
	ConditionPlanDegraded = "PlanDegraded"
	// ConditionFailing is True while nsinit-controller-manager repeatedly fails to take the
	// next step for a namespace. It is absent if one of the first retries succeeds. Only the
	// core Namespace has this condition.
	ConditionFailing = "Failing"
)

const (
	// ReasonPending: the namespace waits for the initializers that the message names.
	ReasonPending = "InitializersPending"
	// ReasonInitialized: every initializer is done or skipped.
	ReasonInitialized = "Initialized"
	// ReasonAdopted: the namespace was already open when nsinit created its NamespaceLifecycle.
	// The namespace is older than nsinit, was created while nsinit was off, or is exempt because of its creator.
	ReasonAdopted = "Adopted"
	// ReasonExpressionFailed: an expression of a configuration failed, and counts as true.
	ReasonExpressionFailed = "ExpressionFailed"
	// ReasonCycle: initializers of several configurations wait for each other. They act in the
	// order of the plan instead.
	ReasonCycle = "OrderingCycle"
	// ReasonObjectsMissing: the initializers are done, but an object that every namespace needs
	// does not exist yet. An example is the ServiceAccount default.
	ReasonObjectsMissing = "ObjectsMissing"
	// ReasonFailed: an initializer failed.
	ReasonFailed = "InitializationFailed"
	// ReasonOpenedByHand: a user removed the label LabelInitializing from the namespace before
	// its initializers were done.
	ReasonOpenedByHand = "OpenedByHand"
	// ReasonLabelRemoved: a user removed the label LabelInitializing from the namespace. The
	// condition OpenedByHand has this reason.
	ReasonLabelRemoved = "LabelRemoved"
	// ReasonTerminating: the namespace is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonFormerIncarnation: an earlier namespace of the same name was deleted, and its
	// NamespaceLifecycle still exists.
	ReasonFormerIncarnation = "FormerIncarnation"
	// ReasonNoLifecycle: nsinit-controller-manager could not create the NamespaceLifecycle of
	// the namespace yet, or cannot read it.
	ReasonNoLifecycle = "LifecycleNotCreated"
	// ReasonNotObserved: the object is new, and nsinit has not read the object yet.
	ReasonNotObserved = "NotObserved"
	// ReasonTurnTooLong: the turn of an initializer lasts longer than --stalled-after.
	ReasonTurnTooLong = "TurnTooLong"
	// ReasonCleanupTooLong: the cleanup of a participant lasts longer than --stalled-after.
	ReasonCleanupTooLong = "CleanupTooLong"
	// ReasonTurnEnded: no initializer or participant is stalled any more.
	ReasonTurnEnded = "TurnEnded"
	// ReasonReadFailed: nsinit-controller-manager cannot read the state of the namespace. If a
	// step fails, the reason is the name of the step and "Failed", such as
	// DeleteLifecycleFailed.
	ReasonReadFailed = "ReadFailed"
	// ReasonStepTaken: the next step for the namespace succeeded after earlier failures.
	ReasonStepTaken = "StepTaken"
)

// InitializerStatus shows the progress of one initializer of the plan.
type InitializerStatus struct {
	// name is the name of the initializer.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// state is Waiting, Running, Done, Skipped or Failed.
	// +optional
	State InitializerState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=InitializerState"`

	// startTime is the time at which the turn of the initializer began. It is absent before the
	// turn.
	// +optional
	// +k8s:opaqueType
	StartTime *metav1.MicroTime `json:"startTime,omitempty" protobuf:"bytes,3,opt,name=startTime"`

	// endTime is the time at which the initializer was removed from pending, or failed.
	// +optional
	// +k8s:opaqueType
	EndTime *metav1.MicroTime `json:"endTime,omitempty" protobuf:"bytes,4,opt,name=endTime"`

	// deadline is the time at which the failurePolicy takes effect, without outages: startTime
	// plus timeoutSeconds in the plan. The field only informs users. Outages of nsinit and
	// restarts of nsinit-controller-manager move the deadline that nsinit enforces.
	// +optional
	// +k8s:opaqueType
	Deadline *metav1.MicroTime `json:"deadline,omitempty" protobuf:"bytes,5,opt,name=deadline"`

	// message is the last report of the initializer, at most 4096 bytes. The initializer writes
	// the message through the status subresource, and keeps its turn. A participant can also
	// write a message while it cleans up. Its cleanup begins at metadata.deletionTimestamp.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,6,opt,name=message"`

	// lastActor is the user who last changed this entry.
	// +optional
	LastActor string `json:"lastActor,omitempty" protobuf:"bytes,7,opt,name=lastActor"`

	// stalledTime is the time at which nsinit-controller-manager reported that the turn or the
	// cleanup lasts longer than --stalled-after. The field is absent before that time. The
	// field is removed when the turn or the cleanup ends.
	// +optional
	// +k8s:opaqueType
	StalledTime *metav1.MicroTime `json:"stalledTime,omitempty" protobuf:"bytes,8,opt,name=stalledTime"`
}

// MaxMessageLength is the length, in bytes, of the longest message that an
// initializer may report.
const MaxMessageLength = 4096

// InitializerState shows the progress of one initializer.
// +enum
type InitializerState string

const (
	// InitializerWaiting: the turn of the initializer has not begun.
	InitializerWaiting InitializerState = "Waiting"
	// InitializerRunning: the initializer has its turn.
	InitializerRunning InitializerState = "Running"
	// InitializerDone: the initializer has removed itself.
	InitializerDone InitializerState = "Done"
	// InitializerSkipped: the initializer was skipped at its deadline, or by an administrator.
	InitializerSkipped InitializerState = "Skipped"
	// InitializerFailed: the initializer ended the initialization with a failure.
	InitializerFailed InitializerState = "Failed"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespaceLifecycleList is a list of NamespaceLifecycles.
type NamespaceLifecycleList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of NamespaceLifecycles.
	Items []NamespaceLifecycle `json:"items" protobuf:"bytes,2,rep,name=items"`
}
