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
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	lifecycles "github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

const lifecyclePath = "/apis/nsinit.dev/v1alpha1/namespacelifecycles/"

// fixInitializers skips initializers whose programs are dead.
func (o Observation) fixInitializers() []Fix {
	lifecycle := o.Lifecycle.Object
	if o.phase() != Initializing || o.lifecycle() != lifecycleCurrent || o.failed() || lifecycle.Spec.Initializers == nil {
		return nil
	}
	var fixes []Fix
	for i, pending := range lifecycle.Spec.Initializers.Pending {
		if !lifecycles.IsActing(lifecycle, pending.Name) || pending.Name == v1alpha1.InitializerLifecycle {
			continue
		}
		c, dead := o.isDead(o.initializerActor(pending.Name))
		if !dead {
			continue
		}
		skip := operation{"add", "/spec/skipped/-", pending.Name}
		if len(lifecycle.Spec.Skipped) == 0 {
			skip = operation{"add", "/spec/skipped", []string{pending.Name}}
		}
		fixes = append(fixes, newFix(InitializerPending, fmt.Sprintf("skip initializer %q, whose program %q is dead", pending.Name, c.Name), "the namespace opens without what the initializer provides",
			patch(lifecyclePath+o.Name+"/initialize", lifecycle, append(removeEntry("/spec/initializers/pending", i, "name", pending.Name), skip)...)).because(c))
	}
	return fixes
}

// fixParticipants releases a NamespaceLifecycle from participants that are dead.
func (o Observation) fixParticipants() []Fix {
	lifecycle, pending := o.Lifecycle.Object, participants(o)
	if len(pending) == 0 {
		return nil
	}
	var fixes []Fix
	for i, finalizer := range lifecycle.Spec.Finalizers {
		if finalizer == v1alpha1.FinalizerKubernetes {
			continue
		}
		if c, dead := o.isDead(o.initializerActor(string(finalizer))); dead {
			risk := remains
			if o.holdsContent(string(finalizer)) {
				risk = remainsAndEmpties
			}
			fixes = append(fixes, newFix(pending[0].Cause, fmt.Sprintf("release the namespace from participant %q, whose program %q is dead", finalizer, c.Name), risk,
				patch(lifecyclePath+o.Name+"/finalize", lifecycle, removeEntry("/spec/finalizers", i, "", finalizer)...)).because(c))
		}
	}
	return fixes
}

// fixAPIs removes the registrations of aggregated APIs whose service does not exist for longer than an installation takes. The
// condition changes its reason without a new transition time, so the time of the last write counts, too.
func (o Observation) fixAPIs() []Fix {
	if o.phase() != Terminating {
		return nil
	}
	var fixes []Fix
	for i := range o.APIServices.Object {
		service := &o.APIServices.Object[i]
		condition := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
		if isNsinit(*service) || judgeAPI(*service).State == Healthy || condition == nil || condition.Reason != "ServiceNotFound" || o.overdue(&condition.LastTransitionTime) != Stuck ||
			slices.ContainsFunc(service.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Subresource == "status" && entry.Time != nil && o.overdue(entry.Time) != Stuck
			}) {
			continue
		}
		fixes = append(fixes, newFix(APIUnavailable, fmt.Sprintf("remove APIService %q, whose service %s/%s does not exist", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name),
			"objects that its server stored cannot be reached any more, and what they represent is not cleaned up", remove("/apis/apiregistration.k8s.io/v1/apiservices/"+service.Name, service, nil)))
	}
	return fixes
}

// fixContent removes the finalizers of dead controllers from objects that are deleted. Programs that set the same finalizer have
// a fix each. Servers of aggregated APIs may ignore preconditions.
func (o Observation) fixContent() []Fix {
	if !o.ends() {
		return nil
	}
	requests, of := map[string][]Request{}, map[string]*Controller{}
	for _, listing := range o.Content {
		if o.isAggregated(listing.Resource.GroupVersion()) {
			continue
		}
		for _, object := range listing.Objects {
			for i, finalizer := range object.Finalizers {
				if object.DeletionTimestamp == nil {
					continue
				}
				if c, dead := o.isDead(contentActor(listing, object, finalizer)); dead {
					what := fmt.Sprintf("remove the finalizer %q, whose controller %q is dead, from objects", finalizer, c.Name)
					requests[what] = append(requests[what], patch(o.pathOf(listing.Resource, object.Name), object, removeEntry("/metadata/finalizers", i, "", finalizer)...))
					of[what] = c
				}
			}
		}
	}
	var fixes []Fix
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		fixes = append(fixes, newFix(ContentFinalizer, what, remains, requests[what]...).because(of[what]))
	}
	return fixes
}

// fixPods removes pods whose grace period is over from nodes that do not exist.
func (o Observation) fixPods() []Fix {
	now := int64(0)
	var requests []Request
	for i := range o.Pods.Object {
		pod := &o.Pods.Object[i]
		if node := o.Nodes[pod.Spec.NodeName]; o.ends() && o.isOver(pod) && apierrors.IsNotFound(node.Err) {
			requests = append(requests, remove(o.pathOf(corev1.SchemeGroupVersion.WithResource("pods"), pod.Name), pod, &now))
		}
	}
	if len(requests) == 0 {
		return nil
	}
	return []Fix{newFix(GracePeriod, "remove pods whose grace period is over, and whose nodes do not exist", "if a machine is on, its containers continue, with their volumes and their names", requests...)}
}

// fixFinalizers removes the finalizers of dead controllers from the namespace, and that of nsinit if nsinit is not installed
// and its controllers do not run.
func (o Observation) fixFinalizers() []Fix {
	if o.phase() != Terminating {
		return nil
	}
	namespace := o.Namespace.Object
	var fixes []Fix
	for i, finalizer := range namespace.Finalizers {
		request := patch(o.namespacePath(), namespace, removeEntry("/metadata/finalizers", i, "", finalizer)...)
		switch finalizer {
		case v1alpha1.ContentFinalizer:
			continue // the content would be deleted before the participants that hold it have cleaned up
		case v1alpha1.NamespaceFinalizer:
			// While the content is held, only both finalizers together can be removed, and spec.finalizers put back.
			lease, _ := judgeLease(o.Controller, o.controllerLease(), o.Time)
			if !o.contentHeld() && o.lifecycle() == lifecycleUninstalled && (lease == leaseLapsed || lease == leaseAbsent) {
				fixes = append(fixes, newFix(NsinitUninstalled, "remove nsinit's finalizer: nsinit is not installed, and nsinit-controller-manager does not run", "participants that have to clean up after the namespace do not act any more", request))
			}
			continue
		}
		if c, dead := o.isDead(o.namespaceActor(finalizer)); dead {
			fixes = append(fixes, newFix(NamespaceFinalizer, fmt.Sprintf("remove the finalizer %q, whose controller %q is dead, from the namespace", finalizer, c.Name), remains, request).because(c))
		}
	}
	return fixes
}

// finalize returns a request that sets spec.finalizers. The subresource has no patch, so it is an update of this version.
func (o Observation) finalize(finalizers []corev1.FinalizerName) Request {
	namespace := o.Namespace.Object.DeepCopy()
	namespace.TypeMeta = metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}
	namespace.ManagedFields = nil
	namespace.Spec.Finalizers = finalizers
	return request(http.MethodPut, o.namespacePath()+"/finalize", "application/json", namespace)
}

// fixEmptied lets the namespace controller delete the content of a namespace without finalizers.
func (o Observation) fixEmptied() []Fix {
	if len(emptiedFinalizers(o)) == 0 {
		return nil
	}
	return []Fix{newFix(FinalizersEmptied, `put the finalizer "kubernetes" back, so that the content is deleted and the namespace is removed`, "",
		o.finalize([]corev1.FinalizerName{corev1.FinalizerKubernetes}))}
}

// fixOrphans creates a namespace that has content again, and deletes it. Without a namespace, controllers cannot remove
// finalizers, and policies that select namespaces refuse to delete its objects.
func (o Observation) fixOrphans() []Fix {
	if len(orphans(o)) == 0 {
		return nil
	}
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	again := remove(o.namespacePath(), namespace, nil)
	again.Created = true
	content := o.counts()
	if unlisted := o.unlisted(); len(unlisted) > 0 {
		content += ", and what cannot be listed now: " + strings.Join(unlisted, ", ")
	}
	fix := newFix(OrphanedContent, "create the namespace again and delete it, which deletes its content: "+content, "until it is deleted, the content is in use: workloads start, and permissions apply",
		request(http.MethodPost, "/api/v1/namespaces", "application/json", namespace), again)
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			fix.content = append(fix.content, object.UID)
		}
	}
	slices.Sort(fix.content)
	return []Fix{fix}
}

// unlisted names the resources whose objects are not known.
func (o Observation) unlisted() (names []string) {
	for _, listing := range o.Content {
		if isUnexamined(listing.Err) {
			names = append(names, listing.name())
		}
	}
	if len(o.DiscoveryErrs) > 0 {
		names = append(names, "the objects of APIs that are not available")
	}
	return names
}
