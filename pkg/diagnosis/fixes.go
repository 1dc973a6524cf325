/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiservices "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const lifecyclePath = "/apis/nsinit.dev/v1alpha1/namespacelifecycles/"

// skip returns a request that skips an initializer.
func (o Observation) skip(name string) Request {
	lifecycle := o.Lifecycle.Object
	i := slices.Index(helper.Pending(lifecycle), name)
	skip := operation{"add", "/spec/skipped/-", name}
	if len(lifecycle.Spec.Skipped) == 0 {
		skip = operation{"add", "/spec/skipped", []string{name}}
	}
	return patch(lifecyclePath+o.Name+"/initialize", lifecycle, append(removeEntry("/spec/initializers/pending", i, "name", name), skip)...)
}

// release returns a request that releases a NamespaceLifecycle from a participant.
func (o Observation) release(name string) Request {
	lifecycle := o.Lifecycle.Object
	i := slices.Index(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(name))
	return patch(lifecyclePath+o.Name+"/finalize", lifecycle, removeEntry("/spec/finalizers", i, "", name)...)
}

// removeFinalizer returns a request that removes a finalizer from the metadata of the namespace.
func (o Observation) removeFinalizer(name string) Request {
	i := slices.Index(o.Namespace.Object.Finalizers, name)
	return patch(o.namespacePath(), o.Namespace.Object, removeEntry("/metadata/finalizers", i, "", name)...)
}

// lacksService reports whether the service of an aggregated API does not exist for longer than an installation takes. The
// condition changes its reason without a new transition time, so the time of the last write counts, too.
func (o Observation) lacksService(service *apiregistrationv1.APIService) bool {
	condition := apiservices.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	return condition != nil && condition.Reason == "ServiceNotFound" && o.overdue(&condition.LastTransitionTime) == Stuck &&
		!slices.ContainsFunc(service.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Subresource == "status" && entry.Time != nil && o.overdue(entry.Time) != Stuck
		})
}

// fixContent removes a finalizer of dead controllers from objects that are deleted. Programs that set the same finalizer have
// a fix each. Servers of aggregated APIs may ignore preconditions.
func (o Observation) fixContent(holds []hold) []Fix {
	requests, of := map[string][]Request{}, map[string]*Controller{}
	for _, h := range holds {
		finalizer := h.actor.finalizer
		if c, _ := o.controller(h.actor); c.State == Dead && !o.isAggregated(h.resource.GroupVersion()) {
			what := fmt.Sprintf("remove the finalizer %q, whose controller %q is dead, from objects", finalizer, c.Name)
			requests[what] = append(requests[what], patch(o.pathOf(h.resource, h.object.Name), h.object, removeEntry("/metadata/finalizers", h.index, "", finalizer)...))
			of[what] = c
		}
	}
	var fixes []Fix
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		fixes = append(fixes, newFix(ContentFinalizer, of[what], what, remains, requests[what]...))
	}
	return fixes
}

// removePods returns requests that remove pods whose grace period is over from nodes that do not exist.
func (o Observation) removePods() (requests []Request) {
	now := int64(0)
	for i := range o.Pods.Object {
		pod := &o.Pods.Object[i]
		if node := o.Nodes[pod.Spec.NodeName]; o.isOver(pod) && apierrors.IsNotFound(node.Err) {
			requests = append(requests, remove(o.pathOf(corev1.SchemeGroupVersion.WithResource("pods"), pod.Name), pod, &now))
		}
	}
	return requests
}

// finalize returns a request that sets spec.finalizers. The subresource has no patch, so it is an update of this version.
func (o Observation) finalize(finalizers []corev1.FinalizerName) Request {
	namespace := o.Namespace.Object.DeepCopy()
	namespace.TypeMeta = metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}
	namespace.ManagedFields = nil
	namespace.Spec.Finalizers = finalizers
	return request(http.MethodPut, o.namespacePath()+"/finalize", "application/json", namespace)
}

// fixOrphans creates a namespace that has content again, and deletes it. Without a namespace, controllers cannot remove
// finalizers, and policies that select namespaces refuse to delete its objects.
func (o Observation) fixOrphans() Fix {
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	again := remove(o.namespacePath(), namespace, nil)
	again.Created = true
	content, unlisted := o.counts(), []string{}
	for _, listing := range o.Content {
		if isUnexamined(listing.Err) {
			unlisted = append(unlisted, listing.name())
		}
	}
	if len(o.DiscoveryErrs) > 0 {
		unlisted = append(unlisted, "the objects of APIs that are not available")
	}
	if len(unlisted) > 0 {
		content += ", and what cannot be listed now: " + strings.Join(unlisted, ", ")
	}
	fix := newFix(OrphanedContent, nil, "create the namespace again and delete it, which deletes its content: "+content, inUse,
		request(http.MethodPost, "/api/v1/namespaces", "application/json", namespace), again)
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			fix.Content = append(fix.Content, object.UID)
		}
	}
	slices.Sort(fix.Content)
	return fix
}
