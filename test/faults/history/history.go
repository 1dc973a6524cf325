/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Annotations of objects that the clients of a campaign write.
const (
	// AnnotationTenant is on every object that a tenant writes. It holds the tenant's name.
	AnnotationTenant = "faults.nsinit.dev/tenant"
	// AnnotationInitializer is on every object that an initializer writes. It holds the
	// initializer's name.
	AnnotationInitializer = "faults.nsinit.dev/initializer"
	// AnnotationNamespaceUID holds the UID of the namespace for which an initializer wrote
	// an object.
	AnnotationNamespaceUID = "faults.nsinit.dev/namespace-uid"
)

// VerbCleanup is the verb of the operations by which a participant cleans up outside of the
// cluster. No server sees them: the participant records them itself.
const VerbCleanup = "cleanup"

// VerbSee is the verb of the operations by which a client records that it saw an object in a list or watch.
const VerbSee = "see"

// ClientPortal is the client that may create namespaces on behalf of others.
const ClientPortal = "portal"

// QuotaName is the name of the quota of the population, and ViewName that of the RoleBinding by which the viewer may get a namespace.
const QuotaName, ViewName = "populated", "viewer"

// QuotaOf returns what the quota of a population limits, or nil.
func QuotaOf(p *v1alpha1.NamespacePopulation) corev1.ResourceList {
	for _, manifest := range p.Spec.Manifests {
		var quota corev1.ResourceQuota
		if json.Unmarshal(manifest.Template.Raw, &quota) == nil && quota.Name == QuotaName {
			return quota.Spec.Hard
		}
	}
	return nil
}

// InitializerDomain ends the names of the initializers of a campaign, each of which leaves a result.
const InitializerDomain = ".faults.example.com"

// Roles of clients.
const (
	// RoleTenant clients may not write into closed namespaces.
	RoleTenant = "tenant"
	// RoleInitializer clients are initializers. The client is named after the initializer.
	RoleInitializer = "initializer"
	// RoleMeddler clients send writes that the API never allows, or allows only when they change nothing.
	RoleMeddler = "meddler"
	// RoleAdmin clients are administrators.
	RoleAdmin = "admin"
)

// Store is one of the two etcds.
type Store string

const (
	// Kube is the etcd of Kubernetes.
	Kube Store = "kube"
	// Nsinit is the etcd of nsinit.
	Nsinit Store = "nsinit"
)

// Outcome is what a client knows of its request.
type Outcome string

const (
	// Acknowledged requests were answered with success.
	Acknowledged Outcome = "acknowledged"
	// Refused requests changed nothing: the server said so.
	Refused Outcome = "refused"
	// Unknown requests may have changed something or not.
	Unknown Outcome = "unknown"
)

// Operation is one HTTP request of a client, a retry being one more.
type Operation struct {
	ID     int64  `json:"id"`
	Client string `json:"client"`
	// Role is RoleTenant, RoleInitializer, RoleMeddler or RoleAdmin.
	Role        string `json:"role"`
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// NamespaceUID is the incarnation that the client believes it acts on, if it knows.
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
	// Start and End count from the beginning of the history, by the monotonic clock.
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Outcome Outcome       `json:"outcome"`
	Code    int           `json:"code,omitempty"`
	Message string        `json:"message,omitempty"`
	// UID and ResourceVersion are those of the object in the answer.
	UID             types.UID       `json:"uid,omitempty"`
	ResourceVersion int64           `json:"resourceVersion,omitempty"`
	Request         json.RawMessage `json:"request,omitempty"`
	Response        json.RawMessage `json:"response,omitempty"`
}

// Event is one change of a key in an etcd.
type Event struct {
	Store Store `json:"store"`
	// Epoch counts how often the store was replaced by an empty one or by a snapshot. Only revisions of the
	// same epoch can be compared.
	Epoch    int    `json:"epoch,omitempty"`
	Revision int64  `json:"revision"`
	Key      string `json:"key"`
	// Created means that the key did not exist before.
	Created bool `json:"created,omitempty"`
	// Deleted means that the key was removed. Object is then what it held.
	Deleted bool `json:"deleted,omitempty"`
	// Initial means that the event was not seen: the key was there when the history began, or when a snapshot was restored.
	Initial bool `json:"initial,omitempty"`
	// Seen is when the watch delivered the change, which is after it was committed.
	Seen   time.Duration `json:"seen"`
	Object *Object       `json:"object,omitempty"`
}

// Object is what checkers need of a stored object.
type Object struct {
	Kind        string            `json:"kind"`
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name"`
	UID         types.UID         `json:"uid"`
	Deleting    bool              `json:"deleting,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	Core          *corev1.Namespace                           `json:"core,omitempty"`
	Lifecycle     *v1alpha1.NamespaceLifecycle                `json:"lifecycle,omitempty"`
	Configuration *v1alpha1.NamespaceInitializerConfiguration `json:"configuration,omitempty"`
	// Pod and Job have only what decides whether they wait or run.
	Pod          *corev1.Pod                        `json:"pod,omitempty"`
	Job          *batchv1.Job                       `json:"job,omitempty"`
	Registration *v1alpha1.InitializerConfiguration `json:"registration,omitempty"`
	Population   *v1alpha1.NamespacePopulation      `json:"population,omitempty"`
	// Quota has only what decides whether it is in force.
	Quota *corev1.ResourceQuota `json:"quota,omitempty"`
}

// FaultQueuedEvents is the name of the fault that keeps the caches of every kube-apiserver behind etcd until it is healed.
const FaultQueuedEvents = "10,000 queued events"

// Names of marks.
const (
	// MarkInject and MarkHeal surround one injection of a fault.
	MarkInject = "inject"
	MarkHeal   = "heal"
	// MarkLost and MarkReplaced surround the time in which nsinit's storage is lost and its
	// loss is not acknowledged by an administrator.
	MarkLost     = "storage-lost"
	MarkReplaced = "storage-acknowledged"
	// MarkRestored is when nsinit's storage was replaced by an older snapshot of it.
	MarkRestored = "storage-restored"
	// MarkQuiet is when the last fault was healed and the traffic ended.
	MarkQuiet = "quiet"
	// MarkServed is when every kube-apiserver served watches after that.
	MarkServed = "served"
	// MarkSettled is when every namespace had converged, or the bound was over.
	MarkSettled = "settled"
	// MarkRemoved is when every namespace that was left was deleted and removed, or the bound was
	// over.
	MarkRemoved = "removed"
)

// Mark is a moment that the campaign itself made.
type Mark struct {
	Name  string        `json:"name"`
	Fault string        `json:"fault,omitempty"`
	At    time.Duration `json:"at"`
	// KubeRevision is the revision of Kubernetes' etcd at that moment, if it was asked for.
	KubeRevision int64  `json:"kubeRevision,omitempty"`
	Error        string `json:"error,omitempty"`
}

// History is what happened between the start of a Recorder and a moment.
type History struct {
	Operations []Operation
	Events     []Event
	Marks      []Mark
}

// Of returns what concerns one namespace: with every mark, and every change of a configuration.
func (h *History) Of(namespace string) *History {
	of := &History{Marks: h.Marks}
	for _, o := range h.Operations {
		if owner := cmp.Or(o.Namespace, o.Name); owner == namespace || o.Namespace == "" && o.Resource != "namespaces" && o.Resource != "namespacelifecycles" {
			of.Operations = append(of.Operations, o)
		}
	}
	for _, e := range h.Events {
		if e.Object == nil || cmp.Or(e.Object.Namespace, e.Object.Name) == namespace || e.Object.Configuration != nil || e.Object.Registration != nil || e.Object.Population != nil {
			of.Events = append(of.Events, e)
		}
	}
	return of
}

// MarkAt returns the last mark of a name, or false.
func (h *History) MarkAt(name string) (Mark, bool) {
	for _, mark := range slices.Backward(h.Marks) {
		if mark.Name == name {
			return mark, true
		}
	}
	return Mark{}, false
}
