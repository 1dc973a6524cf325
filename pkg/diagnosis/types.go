/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Kind and APIVersion name the shape of a Diagnosis in JSON and YAML.
	Kind       = "NamespaceDiagnosis"
	APIVersion = "diagnosis.nsinit.dev/v1alpha1"
)

// State is a verdict.
type State string

const (
	// Healthy: nothing is waited for.
	Healthy State = "Healthy"
	// Waiting: something is under way that needs nobody's help so far.
	Waiting State = "Waiting"
	// Stuck: somebody has to do something.
	Stuck State = "Stuck"
)

// rank orders the states by how much they ask for help.
func (s State) rank() int {
	switch s {
	case Stuck:
		return 2
	case Waiting:
		return 1
	}
	return 0
}

// Phase is a namespace's place in its life.
type Phase string

const (
	// Active namespaces are open.
	Active Phase = "Active"
	// Initializing namespaces are closed to tenants.
	Initializing Phase = "Initializing"
	// Terminating namespaces are being deleted.
	Terminating Phase = "Terminating"
	// Gone namespaces do not exist any more, but something of them does.
	Gone Phase = "Gone"
)

// Cause is why a namespace is not where somebody wants it to be.
type Cause string

const (
	// APIUnavailable: the server of an aggregated API does not answer, so nobody can tell
	// what of it is in the namespace.
	APIUnavailable Cause = "APIUnavailable"
	// NsinitUnavailable is the same for the API server of nsinit itself.
	NsinitUnavailable Cause = "NsinitUnavailable"
	// DiscoveryFailed: an API could not be discovered for another reason.
	DiscoveryFailed Cause = "DiscoveryFailed"
	// ListFailed: the objects of a resource cannot be listed.
	ListFailed Cause = "ListFailed"
	// ContentFinalizer: a finalizer holds objects in the namespace.
	ContentFinalizer Cause = "ContentFinalizer"
	// GracePeriod: objects in the namespace are given time to end.
	GracePeriod Cause = "GracePeriod"
	// WebhookRefusesDeletion: an admission webhook refuses the deletion of objects.
	WebhookRefusesDeletion Cause = "WebhookRefusesDeletion"
	// WebhookUnavailable: an admission webhook that is asked about deletions does not answer.
	WebhookUnavailable Cause = "WebhookUnavailable"
	// PolicyRefusesDeletion: a ValidatingAdmissionPolicy refuses the deletion of objects.
	PolicyRefusesDeletion Cause = "PolicyRefusesDeletion"
	// DeletionRefused: something else refuses the deletion of objects.
	DeletionRefused Cause = "DeletionRefused"
	// ContentDeletionFailed: the namespace controller could not delete something that can be
	// deleted by whoever asks.
	ContentDeletionFailed Cause = "ContentDeletionFailed"
	// NamespaceFinalizer: a finalizer in metadata.finalizers holds the namespace.
	NamespaceFinalizer Cause = "NamespaceFinalizer"
	// SpecFinalizer: a finalizer in spec.finalizers, not one of Kubernetes or nsinit, holds
	// the namespace.
	SpecFinalizer Cause = "SpecFinalizer"
	// FinalizersEmptied: spec.finalizers were empty before the namespace was deleted, and
	// nobody sends the second DELETE that it takes then.
	FinalizersEmptied Cause = "FinalizersEmptied"
	// NamespaceControllerSilent: nobody empties the namespace.
	NamespaceControllerSilent Cause = "NamespaceControllerSilent"
	// NamespaceControllerAtWork: the namespace is being emptied.
	NamespaceControllerAtWork Cause = "NamespaceControllerAtWork"
	// OrphanedContent: the namespace is gone, and objects of it are still stored.
	OrphanedContent Cause = "OrphanedContent"
	// DeletionProtected: a deletion of the namespace itself would be refused.
	DeletionProtected Cause = "DeletionProtected"

	// InitializerPending: an initializer has not acted yet.
	InitializerPending Cause = "InitializerPending"
	// InitializationFailed: an initializer has failed, and the namespace will be deleted.
	InitializationFailed Cause = "InitializationFailed"
	// ParticipantPending: a participant in the deletion has not cleaned up yet.
	ParticipantPending Cause = "ParticipantPending"
	// FormerIncarnation: participants still clean up after a deleted namespace of this name.
	FormerIncarnation Cause = "FormerIncarnation"
	// RecordMissing: nsinit has no record of a namespace that it should have one of.
	RecordMissing Cause = "RecordMissing"
	// NsinitRefuses: nsinit's server answers, and refuses to tell.
	NsinitRefuses Cause = "NsinitRefuses"
	// NsinitFailing: nsinit fails to take the next step for the namespace, and retries.
	NsinitFailing Cause = "NsinitFailing"
	// NsinitControllerDown: no instance of nsinit-controller-manager acts.
	NsinitControllerDown Cause = "NsinitControllerDown"
	// NsinitUninstalled: the namespace waits for nsinit, which is not installed any more.
	NsinitUninstalled Cause = "NsinitUninstalled"
)

// Diagnosis says where a namespace stands, and why.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid,omitempty"`
	Phase           Phase     `json:"phase"`
	// Since is when the namespace was created or, if it is being deleted, when it was.
	Since *metav1.Time `json:"since,omitempty"`
	// State is the worst of the findings.
	State State `json:"state"`
	// Findings are the causes, those that need help first.
	Findings []Finding `json:"findings"`
	// Remaining is what is in a namespace that is being deleted, by resource.
	Remaining []Resource `json:"remaining,omitempty"`
	// Conditions are those of the namespace.
	Conditions []corev1.NamespaceCondition `json:"conditions,omitempty"`
	// NotExamined tells what could not be looked at, and why.
	NotExamined []string `json:"notExamined,omitempty"`
}

// Finding is one cause.
type Finding struct {
	Cause Cause `json:"cause"`
	// State says whether this needs help. Healthy findings are worth knowing.
	State   State  `json:"state"`
	Message string `json:"message"`
	// Since is when it began, as far as anybody knows.
	Since *metav1.Time `json:"since,omitempty"`
	// Remedies are what helps, the safest first.
	Remedies []Remedy `json:"remedies,omitempty"`
}

// Remedy is something that helps, or shows what would.
type Remedy struct {
	Description string `json:"description"`
	// Command is for a shell. Those that change fields which kubectl cannot reach need jq.
	Command string `json:"command,omitempty"`
	// Risk says what may be lost by it.
	Risk string `json:"risk,omitempty"`
}

// Resource tells what is left of one resource.
type Resource struct {
	// Resource is the name as in kubectl get: things.example.com.
	Resource string `json:"resource"`
	Version  string `json:"version"`
	Count    int    `json:"count"`
	// Objects are the oldest of them, 100 at most.
	Objects []Object `json:"objects"`
}

// Object tells of one object that is left.
type Object struct {
	Name              string       `json:"name"`
	UID               types.UID    `json:"uid"`
	CreationTimestamp metav1.Time  `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	Finalizers        []string     `json:"finalizers,omitempty"`
	// Owners are the objects that own it, as kind/name.
	Owners []string `json:"owners,omitempty"`
}
