/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// Answer is what a read returned. After an error, the object is what was read in spite of it, or the zero value.
type Answer[T any] struct {
	Object T
	Err    error
}

func answer[T any](object T, err error) Answer[T] {
	if err != nil {
		return Answer[T]{Err: err}
	}
	return Answer[T]{Object: object}
}

// Observation is what was read of a namespace and of the cluster. Rules judge it.
type Observation struct {
	Installation
	// Name is the name of the namespace.
	Name string
	// Patience is how long something may take before it is stuck.
	Patience time.Duration
	// Namespace has a NotFound error if the namespace does not exist. If the user may not get it, it has a Forbidden error, and the
	// object is what the AccessibleNamespace shows.
	Namespace Answer[*corev1.Namespace]
	// Configurations are read of namespaces that are being initialized, if the user may list them.
	Configurations []v1alpha1.NamespaceInitializerConfiguration
	// Quotas are read of closed namespaces, if the user may list them.
	Quotas []corev1.ResourceQuota
	// Objects are Jobs, as metadata, and pods without a node. They are read of a namespace that is not being deleted, if it is the only
	// one. ObjectConfigurations register initializers of pods and Jobs. They are read if one of the Objects waits.
	Objects              []metav1.Object
	ObjectConfigurations Answer[[]v1alpha1.InitializerConfiguration]
	// DeletionErr is why the namespace could not be deleted in a dry run. It is read of namespaces that are open or
	// whose initialization failed.
	DeletionErr error

	// Programs are what is known of the programs that have to act, apart from their writes and reports.
	Programs map[actor]program
	// onlyDeleted means that Content has only objects that should have ended by now. Namespaces are like this before they are
	// deleted, and so are the objects without a namespace.
	onlyDeleted bool
	// hypothetical observations are those of a namespace that has just been deleted, which is in the phase actual.
	hypothetical bool
	actual       Phase

	// Updates are dry-run updates of objects that finalizers hold for too long, sorted by object.
	Updates []Deletion
	// LostClaims are PersistentVolumeClaims in the phase Lost, by namespace.
	LostClaims map[string][]string
	// listErrs is why Content may lack objects of a namespace that is not being deleted, apart from missing permissions.
	listErrs []error

	// The rest is read of namespaces that are being deleted or do not exist. Of other namespaces, only Content, Pods and Nodes
	// are read.

	// NamespaceController is the Lease of kube-controller-manager.
	NamespaceController Answer[*coordinationv1.Lease]
	// DiscoveryErrs are why resources are missing in Content.
	DiscoveryErrs []error
	// Content has a Listing for each namespaced resource, sorted by the resource's name.
	Content []Listing
	// Deletions are dry-run deletions of objects that no client has deleted, sorted by object.
	Deletions []Deletion
	// Webhooks are the configurations (kind/name) of admission webhooks that select the namespace, by the name of the
	// webhook, which several configurations may use. They are read if a deletion or an update is refused.
	Webhooks map[string][]string
	// Pods and Nodes are read if the grace period of a pod is over. Nodes are the nodes of these pods.
	Pods  Answer[[]corev1.Pod]
	Nodes map[string]Answer[*corev1.Node]
}

// Listing is what was found of one resource in the namespace.
type Listing struct {
	Resource schema.GroupVersionResource
	// Objects are sorted by age, the oldest first.
	Objects []*metav1.PartialObjectMetadata
	Err     error
}

// name is the name of the resource that kubectl accepts.
func (l Listing) name() string { return l.Resource.GroupResource().String() }

// only returns the listing with the objects for which keep is true.
func (l Listing) only(keep func(*metav1.PartialObjectMetadata) bool) Listing {
	objects := l.Objects
	l.Objects = nil
	for _, object := range objects {
		if keep(object) {
			l.Objects = append(l.Objects, object)
		}
	}
	return l
}

// Deletion is the dry-run deletion or update of one object.
type Deletion struct {
	// Object is resource/name.
	Object string
	Err    error
}

// phase returns the namespace's place in its life.
func (o Observation) phase() Phase {
	if o.Namespace.Object == nil {
		return Gone
	}
	return Phase(utilnamespaces.Phase(o.Namespace.Object))
}

// since returns when the namespace was created or, if it is being deleted, when it was.
func (o Observation) since() *metav1.Time {
	switch o.phase() {
	case Gone:
		return nil
	case Terminating:
		return o.Namespace.Object.DeletionTimestamp
	}
	return &o.Namespace.Object.CreationTimestamp
}

// age returns how long ago something began.
func (o Observation) age(began *metav1.Time) time.Duration { return o.Time.Sub(began.Time) }

// overdue judges something by how long it has lasted.
func (o Observation) overdue(began *metav1.Time) State {
	if o.age(began) > o.Patience {
		return Stuck
	}
	return Waiting
}

// conditions returns the conditions of the namespace.
func (o Observation) conditions() []corev1.NamespaceCondition {
	if o.Namespace.Object == nil {
		return nil
	}
	return o.Namespace.Object.Status.Conditions
}

// partial reports whether only the labels and the conditions of the namespace are known.
func (o Observation) partial() bool { return o.Namespace.Object != nil && o.Namespace.Err != nil }

// held reports whether nsinit's finalizer holds the namespace.
func (o Observation) held() bool {
	return o.Namespace.Object != nil && slices.Contains(o.Namespace.Object.Finalizers, v1alpha1.NamespaceFinalizer) || o.contentHeld()
}

// contentHeld reports whether nsinit keeps the content of the namespace, once it is deleted.
func (o Observation) contentHeld() bool {
	return o.Namespace.Object != nil && slices.Contains(o.Namespace.Object.Finalizers, v1alpha1.ContentFinalizer)
}

// ends reports whether objects are expected to end.
func (o Observation) ends() bool { return o.phase() == Terminating || o.onlyDeleted }

// emptying reports whether the namespace controller has to delete the content of the namespace.
func (o Observation) emptying() bool {
	return o.phase() == Terminating && !o.contentHeld() && slices.Contains(o.Namespace.Object.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// remaining returns what is in the namespace.
func (o Observation) remaining() []Resource {
	var resources []Resource
	for _, listing := range o.Content {
		if len(listing.Objects) > 0 {
			resources = append(resources, describe(listing))
		}
	}
	return resources
}

// unexamined returns what could not be read or tried, with the reason, as far as it matters for the namespace. It also returns why
// findings may be missing that a later observation can have: missing permissions do not count.
func (o Observation) unexamined() (texts []string, passing []error) {
	note := func(what string, err error, shown bool) {
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		if shown {
			texts = append(texts, fmt.Sprintf("%s: %v", what, err))
		}
		if !apierrors.IsForbidden(err) {
			passing = append(passing, fmt.Errorf("%s: %w", what, err))
		}
	}
	passing = slices.Concat(o.listErrs, o.DiscoveryErrs)
	note("finalizers and annotations of the namespace", o.Namespace.Err, true)
	note("aggregated APIs", o.APIServices.Err, true)
	texts = append(texts, messages(o.listErrs)...)
	for _, listing := range o.Content {
		note(listing.name(), listing.Err, isUnexamined(listing.Err) && !o.isBroken(listing.Resource.GroupVersion()))
		switch objects := listing.only(isUndeleted).Objects; {
		case o.phase() != Terminating:
		case len(objects) > 0 && o.isAggregated(listing.Resource.GroupVersion()):
			texts = append(texts, "whether "+listing.name()+" can be deleted: not tried: the server of an aggregated API can delete objects although the request is a dry run")
		case len(objects) > triesEach:
			texts = append(texts, fmt.Sprintf("whether all %s can be deleted: only %d deletions of a resource are tried", listing.name(), triesEach))
		}
	}
	for _, r := range refusals(o.Deletions) {
		o.untried(r.refusal, listed(r.objects)+" can be deleted", &texts, &passing)
	}
	for _, r := range refusals(o.Updates) {
		o.untried(r.refusal, listed(r.objects)+" can be updated", &texts, &passing)
	}
	note("nodes of pods", o.Pods.Err, true)
	if o.DeletionErr != nil && (o.hypothetical || isUnanswered(o.DeletionErr)) {
		o.untried(parseRefusal(o.DeletionErr), "the namespace can be deleted", &texts, &passing)
	}
	if o.waits() || o.phase() == Gone {
		note("NamespaceLifecycle", o.Lifecycle.Err, o.waits() && o.lifecycle() == lifecycleForbidden)
		note("Lease "+o.controllerLease(), o.Controller.Err, o.needsController())
	}
	note("Lease "+namespaceControllerLease, o.NamespaceController.Err, o.emptying())
	return texts, passing
}

// untried adds what a dry run does not show, with the reason.
func (o Observation) untried(r refusal, what string, texts *[]string, passing *[]error) {
	if !r.kind.showsNothing() {
		return
	}
	if r.kind == webhookWithoutDryRun {
		_, w := o.webhook(r.name)
		if webhooks, ok := printable.Words(w["WEBHOOKS"]); ok {
			r.message += "; see kubectl get " + webhooks + " --output yaml"
		}
	}
	text := fmt.Sprintf("whether %s: %s", what, r.message)
	if *texts = append(*texts, text); r.kind == unanswered {
		*passing = append(*passing, errors.New(text))
	}
}

// isUnexamined reports whether an error does not concern the server: a permission is missing, or the time is over.
func isUnexamined(err error) bool { return apierrors.IsForbidden(err) || isUnanswered(err) }

// isUnanswered reports whether the time ended before the server answered, or was too short to send the request.
func isUnanswered(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		err != nil && strings.Contains(err.Error(), "client rate limiter Wait returned an error")
}
