/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/sdk/util/printable"
)

const (
	// objectsShown bounds the objects of one resource in a Diagnosis.
	objectsShown = 100
	// namesShown bounds the names in a message.
	namesShown = 5
)

// describe returns what remains of one resource.
func describe(listing Listing) Resource {
	resource := Resource{Resource: listing.name(), Version: listing.Resource.Version, Count: len(listing.Objects)}
	for _, o := range listing.Objects[:min(len(listing.Objects), objectsShown)] {
		object := Object{Name: o.Name, UID: o.UID, CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers}
		for _, owner := range o.OwnerReferences {
			object.Owners = append(object.Owners, owner.Kind+"/"+owner.Name)
		}
		resource.Objects = append(resource.Objects, object)
	}
	return resource
}

// isAggregated reports whether a server other than kube-apiserver may serve an API. If the APIServices are not known, this is each
// one that is not part of Kubernetes.
func (o Observation) isAggregated(version schema.GroupVersion) bool {
	if o.APIServices.Err != nil {
		return !scheme.Scheme.IsGroupRegistered(version.Group)
	}
	return slices.ContainsFunc(o.APIServices.Object, func(service apiregistrationv1.APIService) bool {
		return service.Spec.Service != nil && service.Spec.Group == version.Group && service.Spec.Version == version.Version
	})
}

// unlistable reports resources that cannot be listed. The namespace controller cannot list them
// either, unless a permission of the user is missing.
func unlistable(o Observation) []Finding {
	var found []Finding
	for _, listing := range o.Content {
		if listing.Err == nil || isUnexamined(listing.Err) || o.isBroken(listing.Resource.GroupVersion()) {
			continue
		}
		found = append(found, o.finding(ListFailed, Stuck, nil,
			fmt.Sprintf("the %s in the namespace cannot be listed (%v), so they cannot be deleted", listing.name(), listing.Err), words{"RESOURCE": {listing.name()}}))
	}
	return found
}

// orphans reports objects of a namespace that does not exist.
func orphans(o Observation) []Finding {
	if o.phase() != Gone || len(o.remaining()) == 0 {
		return nil
	}
	f := o.finding(OrphanedContent, Stuck, nil, fmt.Sprintf(
		"the namespace does not exist, but objects of it are still stored: %s. A client emptied spec.finalizers before they were deleted, or a request that was in progress created them late", o.counts()), nil)
	f.Fixes = []Fix{o.fixOrphans()}
	return []Finding{f}
}

// counts describes what remains.
func (o Observation) counts() string {
	var parts []string
	for _, resource := range o.remaining() {
		parts = append(parts, fmt.Sprintf("%s (%d)", resource.Resource, resource.Count))
	}
	return strings.Join(parts, ", ")
}

// hold is a finalizer that holds an object.
type hold struct {
	resource schema.GroupVersionResource
	object   *metav1.PartialObjectMetadata
	// index is that of the finalizer.
	index int
	// actor has to remove it.
	actor actor
}

// holds returns what holds objects in the namespace.
func (o Observation) holds() (all []hold) {
	for _, listing := range o.Content {
		of := target{group: listing.Resource.Group, resource: listing.Resource.Resource}
		for _, object := range listing.Objects {
			of.namespace = object.Namespace
			for i, finalizer := range object.Finalizers {
				if object.DeletionTimestamp != nil && !slices.Contains(object.Finalizers[:i], finalizer) {
					all = append(all, hold{listing.Resource, object, i, finalizerActor(&object.ObjectMeta, of, finalizer)})
				}
			}
		}
	}
	return all
}

// finalizedContent reports each finalizer that holds objects.
func finalizedContent(o Observation) []Finding {
	if !o.ends() {
		return nil
	}
	byFinalizer := map[string][]hold{}
	for _, h := range o.holds() {
		byFinalizer[h.actor.finalizer] = append(byFinalizer[h.actor.finalizer], h)
	}
	var found []Finding
	for finalizer, holds := range byFinalizer {
		var objects []string
		var since *metav1.Time
		var a actor
		for _, h := range holds {
			if a.manager == "" || h.actor.manager == a.manager && a.written.Before(&h.actor.written) {
				a = h.actor
			}
			objects = append(objects, h.resource.GroupResource().String()+"/"+h.object.Name)
			since = earlier(since, h.object.DeletionTimestamp)
		}
		known := knownFinalizer(finalizer, o.Name)
		verb := "have"
		if len(objects) == 1 {
			verb = "has"
		}
		message := fmt.Sprintf("%s %s the finalizer %q", listed(objects), verb, finalizer)
		switch {
		case a.builtIn:
			message += ", which is removed by " + known.remover
		case a.manager != "":
			message += fmt.Sprintf(" (set by %q), which %s", a.manager, o.yet("its controller"))
		default:
			message += ", which " + o.yet("its controller")
		}
		f := o.controlled(a, ContentFinalizer, o.overdue(since), since, message,
			words{"FINALIZER": {finalizer}, "OBJECT": {example(objects)}, "WHERE": {known.where}, "WHAT": {known.what}})
		f.Fixes = o.fixContent(holds)
		found = append(found, f)
	}
	return found
}

// known is a finalizer of Kubernetes. No remedy removes it: most protect what is in use.
type known struct {
	// remover removes it, and what in the namespace where shows whether it can.
	remover, where, what string
}

// knownFinalizer returns a finalizer of Kubernetes, or nothing.
func knownFinalizer(finalizer, namespace string) known {
	const object = "lease/" + kubeControllerManager
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return known{"the garbage collector of kube-controller-manager after everything that the object owns is deleted", metav1.NamespaceSystem, object}
	case metav1.FinalizerOrphanDependents:
		return known{"the garbage collector of kube-controller-manager", metav1.NamespaceSystem, object}
	case "kubernetes.io/pvc-protection", "resource.kubernetes.io/delete-protection":
		return known{"kube-controller-manager when no pod uses the claim", namespace, "pods"}
	case "service.kubernetes.io/load-balancer-cleanup":
		return known{"the cloud controller manager after the load balancer is deleted", namespace, "events"}
	case "batch.kubernetes.io/job-tracking":
		return known{"the job controller of kube-controller-manager", metav1.NamespaceSystem, object}
	case "kubernetes.io/pv-protection":
		return known{"kube-controller-manager when no claim is bound to the volume", metav1.NamespaceAll, "persistentvolumeclaims"}
	case "customresourcecleanup.apiextensions.k8s.io":
		return known{remover: "kube-apiserver after all custom resources of the definition are deleted"}
	}
	return known{}
}

// listed names the first of some objects, and counts the rest. A name that could be read as a part of the message is quoted.
func listed(names []string) string {
	quoted := slices.Clone(names)
	for i, name := range quoted {
		if !printable.IsPlain(name) {
			quoted[i] = strconv.Quote(name)
		}
	}
	return counted(quoted)
}

// example returns the first object that a command can name, or the first one: a name must not hide the commands for other objects.
func example(objects []string) string {
	return objects[max(0, slices.IndexFunc(objects, func(object string) bool {
		_, ok := printable.Word(object)
		return ok
	}))]
}

// counted has the first of some texts, and counts the rest.
func counted(texts []string) string {
	if len(texts) <= namesShown {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:namesShown], ", "), len(texts)-namesShown)
}

func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b.Before(a) {
		return b
	}
	return a
}

// isOver reports whether the grace period of an object is over and nothing else holds the object.
func (o Observation) isOver(object metav1.Object) bool {
	deleted := object.GetDeletionTimestamp()
	return deleted != nil && !deleted.After(o.Time) && len(object.GetFinalizers()) == 0
}

// isLate reports whether an object should have ended by now.
func (o Observation) isLate(object metav1.Object) bool {
	return object.GetDeletionTimestamp() != nil && o.overdue(object.GetDeletionTimestamp()) == Stuck
}

// gracePeriods reports objects that are in their grace period, or have not ended after it.
func gracePeriods(o Observation) []Finding {
	if !o.ends() {
		return nil
	}
	nodes := map[string]string{}
	for i := range o.Pods.Object {
		nodes["pods/"+o.Pods.Object[i].Name] = o.Pods.Object[i].Spec.NodeName
	}
	var ending []string
	ends := o.Time
	// The node is "" for objects that are not pods.
	ended, since := map[string][]string{}, map[string]*metav1.Time{}
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			name := listing.name() + "/" + object.Name
			if node := nodes[name]; o.isOver(object) {
				ended[node], since[node] = append(ended[node], name), earlier(since[node], object.DeletionTimestamp)
			} else if object.DeletionTimestamp != nil && len(object.Finalizers) == 0 {
				ending, ends = append(ending, name), slices.MaxFunc([]time.Time{ends, object.DeletionTimestamp.Time}, time.Time.Compare)
			}
		}
	}
	var found []Finding
	if len(ending) > 0 {
		found = append(found, o.finding(GracePeriod, Waiting, nil,
			fmt.Sprintf("%s: the grace period ends in %s at the latest", listed(ending), ends.Sub(o.Time).Round(time.Second)), nil))
	}
	for node, objects := range ended {
		message := listed(objects) + ": the grace period is over, and the end is not confirmed"
		if node != "" {
			message += fmt.Sprintf(" by the kubelet of node %q%s", node, nodeState(o.Nodes[node]))
		}
		pods := slices.DeleteFunc(slices.Clone(objects), func(name string) bool { return !strings.HasPrefix(name, "pods/") })
		found = append(found, o.finding(GracePeriod, o.overdue(since[node]), since[node], message,
			words{"OBJECT": {example(objects)}, "NODE": {node}, "PODS": pods}))
	}
	if requests := o.removePods(); len(found) > 0 && len(requests) > 0 {
		found[0].fix("remove pods whose grace period is over, and whose nodes do not exist",
			"if a machine is on, its containers continue, with their volumes and their names", requests...)
	}
	return found
}

// nodeState describes a node in a message.
func nodeState(node Answer[*corev1.Node]) string {
	if apierrors.IsNotFound(node.Err) {
		return ", which does not exist"
	}
	if node.Object == nil {
		return ""
	}
	if slices.ContainsFunc(node.Object.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return ", which is Ready"
	}
	return ", which is not Ready"
}
