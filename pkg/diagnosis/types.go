/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// Kind and APIVersion name the shape of a Diagnosis in JSON and YAML.
	Kind       = "NamespaceDiagnosis"
	APIVersion = "diagnosis.nsinit.dev/v1alpha1"
)

// State is a verdict.
type State string

const (
	// Healthy: the namespace waits for nothing.
	Healthy State = "Healthy"
	// Waiting: something is in progress, and no user has to act yet.
	Waiting State = "Waiting"
	// Stuck: a user has to act.
	Stuck State = "Stuck"
)

// rank orders the states by urgency.
func (s State) rank() int { return slices.Index([]State{Healthy, Waiting, Stuck}, s) }

// worse returns the more urgent of two states.
func (s State) worse(other State) State {
	if other.rank() > s.rank() {
		return other
	}
	return s
}

// Phase is a namespace's place in its life.
type Phase string

const (
	// Active namespaces are open.
	Active = Phase(v1alpha1.LifecycleActive)
	// Initializing namespaces are closed to tenants.
	Initializing = Phase(v1alpha1.LifecycleInitializing)
	// Terminating namespaces are being deleted.
	Terminating = Phase(v1alpha1.LifecycleTerminating)
	// Gone namespaces do not exist any more, but objects of them do.
	Gone Phase = "Gone"
)

// Diagnosis is the state of a namespace, with the causes.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	// Namespace and Phase are "" if the findings concern every namespace, or objects without one.
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid,omitempty"`
	Phase     Phase     `json:"phase"`
	// IfDeleted means that the findings are what would block or delay a deletion.
	IfDeleted bool `json:"ifDeleted,omitempty"`
	// Since is when the namespace was created or, if it is being deleted, when it was.
	Since *metav1.Time `json:"since,omitempty"`
	// State is the worst of the findings.
	State State `json:"state"`
	// Findings are the causes, the most urgent first.
	Findings []Finding `json:"findings"`
	// Fixable are the causes for which Fixes has a remedy.
	Fixable []Cause `json:"fixable,omitempty"`
	// Remaining is what is in a namespace that is being deleted, by resource.
	Remaining []Resource `json:"remaining,omitempty"`
	// Conditions are those of the namespace.
	Conditions []corev1.NamespaceCondition `json:"conditions,omitempty"`
	// NotExamined lists what could not be read or tried, with the reason.
	NotExamined []string `json:"notExamined,omitempty"`
}

// Finding is one cause.
type Finding struct {
	Cause Cause `json:"cause"`
	// State reports whether a user has to act. Healthy findings are notes.
	State   State  `json:"state"`
	Message string `json:"message"`
	// Since is when it began, if that is known.
	Since *metav1.Time `json:"since,omitempty"`
	// Controller is the program that has to act, if there is one.
	Controller *Controller `json:"controller,omitempty"`
	// Remedies are what helps, the safest first.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Subject is what the finding is about, such as a finalizer, or "" if its cause says it. It distinguishes findings of one cause.
	Subject string `json:"-"`
	// Fixes are the remedies that a program can apply.
	Fixes []Fix `json:"-"`
}

// Remedy is something that helps, or shows what would.
type Remedy struct {
	Description string `json:"description"`
	// Command is for a shell. Commands that change fields which kubectl cannot reach need jq.
	Command string `json:"command,omitempty"`
	// Risk says what the remedy may lose.
	Risk string `json:"risk,omitempty"`
}

// Resource is what remains of one resource.
type Resource struct {
	// Resource is the name as in kubectl get: things.example.com.
	Resource string `json:"resource"`
	Version  string `json:"version"`
	Count    int    `json:"count"`
	// Objects are the oldest of them, 100 at most.
	Objects []Object `json:"objects"`
}

// Object is one object that remains.
type Object struct {
	Name              string       `json:"name"`
	UID               types.UID    `json:"uid"`
	CreationTimestamp metav1.Time  `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	Finalizers        []string     `json:"finalizers,omitempty"`
	// Owners are the objects that own it, as kind/name.
	Owners []string `json:"owners,omitempty"`
}
