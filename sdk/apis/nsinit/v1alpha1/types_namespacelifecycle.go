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

// NamespaceLifecycle describes the core Namespace of the same name: which
// initializers the namespace still waits for, and which participants must clean up
// before it can be removed. nsinit creates and deletes NamespaceLifecycles; users
// read them.
type NamespaceLifecycle struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the name of the
	// core Namespace.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec identifies the namespace by its UID, and holds the plan that was made
	// when it was created, and what remains to be done.
	// +optional
	Spec NamespaceLifecycleSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status shows the progress of the namespace: which initializer it waits for,
	// since when and why.
	// +optional
	// +k8s:opaqueType
	Status NamespaceLifecycleStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// NamespaceLifecycleSpec is the plan of a namespace, and what remains to be done.
type NamespaceLifecycleSpec struct {
	// namespaceUID is the UID of the core Namespace. It is immutable: a namespace
	// that is deleted and created again with the same name gets a new
	// NamespaceLifecycle and inherits nothing.
	// +required
	// +k8s:required
	NamespaceUID types.UID `json:"namespaceUID" protobuf:"bytes,1,opt,name=namespaceUID,casttype=k8s.io/apimachinery/pkg/types.UID"`

	// plan lists the initializers that were registered when the namespace was
	// created, each with its policies. It never changes, so later changes of
	// configurations do not affect this namespace.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Plan []PlannedInitializer `json:"plan,omitempty" protobuf:"bytes,2,rep,name=plan"`

	// initializers tracks the initialization. Absent: the namespace is completely
	// initialized, and that is final. Otherwise, no tenant can write into the
	// namespace. Only the initialize subresource changes it: each initializer removes
	// itself when its work is done.
	// +optional
	// +k8s:optional
	Initializers *NamespaceInitializers `json:"initializers,omitempty" protobuf:"bytes,3,opt,name=initializers"`

	// finalizers lists the participants that must act before the
	// NamespaceLifecycle is removed from storage. The server adds "kubernetes",
	// which nsinit removes once the content of the core Namespace is deleted.
	// After creation, only the finalize subresource changes the list.
	// +optional
	// +listType=set
	Finalizers []FinalizerName `json:"finalizers,omitempty" protobuf:"bytes,4,rep,name=finalizers,casttype=FinalizerName"`

	// skipped lists the initializers that were removed from pending before their
	// work was done: at their deadline if their failurePolicy is Ignore, or by an
	// administrator. The request to the initialize subresource that removes a name
	// from pending adds it here. No name is ever removed.
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

// ConfigurationReference points to a NamespaceInitializerConfiguration.
type ConfigurationReference struct {
	// name is the name of the configuration.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// uid is the UID of the configuration. A later configuration of the same name has
	// another one.
	// +optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`
}

// NamespaceInitializers tracks the progress of initialization.
type NamespaceInitializers struct {
	// pending lists the initializers that have not finished, in the order of the
	// plan. Those for which no predecessor is pending act at the same time, and each
	// removes itself when it is done. When the last one is removed, and no failing
	// result is set, spec.initializers is removed and the namespace opens.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	Pending []NamespaceInitializer `json:"pending" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,1,rep,name=pending"`

	// result with status Failure ends the initialization: the failure is reported,
	// and then the namespace is deleted. Only an initializer that has its turn can set
	// it, and that is final.
	// +optional
	// +k8s:opaqueType
	Result *metav1.Status `json:"result,omitempty" protobuf:"bytes,2,opt,name=result"`

	// failedInitializer is the name of the initializer that set result. The request
	// that sets result can leave it out if only one initializer has its turn.
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
	// FinalizerKubernetes is the finalizer that nsinit itself removes: from a
	// NamespaceLifecycle when the content of its namespace is deleted, from a
	// configuration when no namespace waits for it.
	FinalizerKubernetes FinalizerName = "kubernetes"
)

// NamespaceLifecycleStatus is the progress of a namespace.
type NamespaceLifecycleStatus struct {
	// phase is Initializing while initializers are pending, Active once there
	// are none, and Terminating after the NamespaceLifecycle was deleted.
	// +optional
	Phase LifecyclePhase `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase,casttype=LifecyclePhase"`

	// currentInitializers lists the initializers that have their turn, in the order
	// of the plan. It is empty if there is none, if the initialization failed and if
	// the NamespaceLifecycle is terminating. The field selector
	// status.currentInitializer=NAME selects the namespaces in which NAME has its turn.
	// +optional
	// +listType=set
	CurrentInitializers []string `json:"currentInitializers,omitempty" protobuf:"bytes,2,rep,name=currentInitializers"`

	// initializers shows the progress of each initializer of the plan, and what it
	// last reported.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Initializers []InitializerStatus `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=initializers"`

	// conditions are Initializing and Ready, Stalled once a turn or a cleanup lasts
	// longer than usual or the initialization failed, OpenedByHand once a user opened
	// the namespace, and PlanDegraded if the plan differs from what the configurations
	// say.
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
	// LifecycleInitializing namespaces wait for an initializer.
	LifecycleInitializing LifecyclePhase = "Initializing"
	// LifecycleActive namespaces are completely initialized.
	LifecycleActive LifecyclePhase = "Active"
	// LifecycleTerminating namespaces are being deleted.
	LifecycleTerminating LifecyclePhase = "Terminating"
)

const (
	// ConditionInitializing is True while a namespace waits for an initializer
	// and after its initialization failed. It is on the NamespaceLifecycle and on
	// the core Namespace, where it is also True while required objects are missing.
	ConditionInitializing = "Initializing"
	// ConditionReady is True once a namespace is completely initialized. It is on
	// the NamespaceLifecycle and on the core Namespace. Each other kind has it, too:
	// it is Unknown until nsinit has read a new object, and False while the object
	// does not have its effect.
	ConditionReady = "Ready"
	// ConditionStalled is True while a turn, or the cleanup of a participant, lasts longer than --stalled-after of
	// nsinit-controller-manager, and after the initialization failed. It is on the
	// NamespaceLifecycle and on the core Namespace, and is absent if none of this
	// ever happened. On other kinds it is True while only a user can make the object
	// ready, and is absent otherwise. Tools such as Flux and Helm fail when they see it.
	ConditionStalled = "Stalled"
	// ConditionOpenedByHand is True once a user opened a namespace before its
	// initializers were done. It is on the NamespaceLifecycle, and is absent
	// otherwise. Its message names the user and the skipped initializers.
	ConditionOpenedByHand = "OpenedByHand"
	// ConditionPlanDegraded is True if the plan differs from what the configurations
	// say: an expression failed and counted as true, or initializers wait for each
	// other. It is on the NamespaceLifecycle, and is absent otherwise.
	ConditionPlanDegraded = "PlanDegraded"
	// ConditionFailing is True while nsinit-controller-manager fails to take the
	// next step for a namespace, and retries. It is on the core Namespace only,
	// and is absent if the first retries succeed.
	ConditionFailing = "Failing"
)

const (
	// ReasonPending: the namespace waits for the initializers in the message.
	ReasonPending = "InitializersPending"
	// ReasonInitialized: every initializer is done.
	ReasonInitialized = "Initialized"
	// ReasonAdopted: the namespace was already open when nsinit adopted it. It is older than nsinit, or exempt by its
	// creator.
	ReasonAdopted = "Adopted"
	// ReasonExpressionFailed: an expression of a configuration failed, and counted as true.
	ReasonExpressionFailed = "ExpressionFailed"
	// ReasonCycle: initializers of several configurations wait for each other, so the
	// order of the plan decides.
	ReasonCycle = "OrderingCycle"
	// ReasonObjectsMissing: the initializers are done, but an object that every
	// usable namespace has does not exist yet.
	ReasonObjectsMissing = "ObjectsMissing"
	// ReasonFailed: an initializer set a failing result.
	ReasonFailed = "InitializationFailed"
	// ReasonOpenedByHand: a user removed the label LabelInitializing of the namespace
	// before its initializers were done.
	ReasonOpenedByHand = "OpenedByHand"
	// ReasonLabelRemoved: a user removed the label LabelInitializing of the namespace. It is
	// the reason of OpenedByHand.
	ReasonLabelRemoved = "LabelRemoved"
	// ReasonTerminating: the namespace is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonFormerIncarnation: the NamespaceLifecycle of a deleted namespace of
	// the same name still exists.
	ReasonFormerIncarnation = "FormerIncarnation"
	// ReasonNoLifecycle: the NamespaceLifecycle of the namespace could not be created
	// yet, or cannot be read.
	ReasonNoLifecycle = "LifecycleNotCreated"
	// ReasonNotObserved: the object is new, and nsinit has not read it yet.
	ReasonNotObserved = "NotObserved"
	// ReasonTurnTooLong: an initializer has had its turn for longer than usual.
	ReasonTurnTooLong = "TurnTooLong"
	// ReasonCleanupTooLong: the cleanup of a participant after the deletion lasts longer than usual.
	ReasonCleanupTooLong = "CleanupTooLong"
	// ReasonTurnEnded: no initializer or participant is stalled any more.
	ReasonTurnEnded = "TurnEnded"
	// ReasonReadFailed: nsinit-controller-manager cannot read what it needs to
	// decide on the next step. Where a step itself fails, the reason is its name
	// and "Failed", such as DeleteLifecycleFailed.
	ReasonReadFailed = "ReadFailed"
	// ReasonStepTaken: a step that failed before succeeded.
	ReasonStepTaken = "StepTaken"
)

// InitializerStatus is the progress of one initializer of the plan.
type InitializerStatus struct {
	// name is the name of the initializer.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// state is Waiting for its turn, Running, Done, Skipped, or Failed.
	// +optional
	State InitializerState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=InitializerState"`

	// startTime is when the turn of the initializer began. Its deadline counts from
	// this time. It is absent while a predecessor is pending.
	// +optional
	// +k8s:opaqueType
	StartTime *metav1.MicroTime `json:"startTime,omitempty" protobuf:"bytes,3,opt,name=startTime"`

	// endTime is when the initializer was removed, or failed.
	// +optional
	// +k8s:opaqueType
	EndTime *metav1.MicroTime `json:"endTime,omitempty" protobuf:"bytes,4,opt,name=endTime"`

	// deadline is when the failurePolicy takes effect. It is informative: the plan
	// and the clock of the server decide.
	// +optional
	// +k8s:opaqueType
	Deadline *metav1.MicroTime `json:"deadline,omitempty" protobuf:"bytes,5,opt,name=deadline"`

	// message is what the initializer last reported, at most 4096 bytes. An initializer
	// writes it through the status subresource without losing its turn. A participant
	// that cleans up writes it, too: its cleanup begins at metadata.deletionTimestamp.
	// +optional
	Message string `json:"message,omitempty" protobuf:"bytes,6,opt,name=message"`

	// lastActor is the user that last changed this entry.
	// +optional
	LastActor string `json:"lastActor,omitempty" protobuf:"bytes,7,opt,name=lastActor"`

	// stalledTime is when nsinit-controller-manager found that the turn lasts longer
	// than its --stalled-after, or that the participant has not cleaned up for as long.
	// It is absent before that, and when the turn or the cleanup has ended.
	// +optional
	// +k8s:opaqueType
	StalledTime *metav1.MicroTime `json:"stalledTime,omitempty" protobuf:"bytes,8,opt,name=stalledTime"`
}

// MaxMessageLength is the length, in bytes, of the longest message that an
// initializer may report.
const MaxMessageLength = 4096

// InitializerState is the progress of one initializer.
// +enum
type InitializerState string

const (
	// InitializerWaiting initializers have others before them.
	InitializerWaiting InitializerState = "Waiting"
	// InitializerRunning initializers have their turn.
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
