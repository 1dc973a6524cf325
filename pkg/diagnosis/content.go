/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// unlistable reports resources that cannot be listed. The namespace controller cannot list them
// either, unless a permission of the user is missing.
func unlistable(o Observation) []Finding {
	var found []Finding
	for _, listing := range o.Content {
		if listing.Err == nil || isUnexamined(listing.Err) || o.isBroken(listing.Resource.GroupVersion()) {
			continue
		}
		found = append(found, o.finding(ListFailed, Stuck, nil,
			fmt.Sprintf("the %s in the namespace cannot be listed (%v), so they cannot be deleted", listing.name(), listing.Err), words{"RESOURCE": listing.name()}))
	}
	return found
}

// orphans reports objects of a namespace that does not exist.
func orphans(o Observation) []Finding {
	var parts []string
	for _, resource := range o.remaining() {
		parts = append(parts, fmt.Sprintf("%s (%d)", resource.Resource, resource.Count))
	}
	if o.phase() != Gone || len(parts) == 0 {
		return nil
	}
	return []Finding{o.finding(OrphanedContent, Stuck, nil, fmt.Sprintf(
		"the namespace does not exist, but objects of it are still stored: %s. A client emptied spec.finalizers before they were deleted", strings.Join(parts, ", ")), nil)}
}

// holder is a finalizer that holds objects.
type holder struct {
	objects []string // as resource/name
	since   *metav1.Time
	manager string
}

// finalizedContent reports each finalizer that holds objects.
func finalizedContent(o Observation) []Finding {
	if o.phase() != Terminating {
		return nil
	}
	holders := map[string]*holder{}
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			if object.DeletionTimestamp == nil {
				continue
			}
			for _, finalizer := range object.Finalizers {
				h := holders[finalizer]
				if h == nil {
					h = &holder{manager: finalizerManager(object.ManagedFields, finalizer)}
					holders[finalizer] = h
				}
				h.objects = append(h.objects, listing.name()+"/"+object.Name)
				h.since = earlier(h.since, object.DeletionTimestamp)
			}
		}
	}
	var found []Finding
	for finalizer, h := range holders {
		remover, where, what := knownFinalizer(finalizer, o.Name)
		verb := "have"
		if len(h.objects) == 1 {
			verb = "has"
		}
		message := fmt.Sprintf("%s %s the finalizer %q", listed(h.objects), verb, finalizer)
		switch {
		case remover != "":
			message += ", which is removed by " + remover
		case h.manager != "":
			message += fmt.Sprintf(", which was set by %q and is not removed yet", h.manager)
		default:
			message += ", which its controller has not removed yet"
		}
		found = append(found, o.finding(ContentFinalizer, o.overdue(h.since), h.since, message,
			words{"FINALIZER": finalizer, "OBJECT": h.objects[0], "WHERE": where, "WHAT": what}))
	}
	return found
}

// knownFinalizer returns who removes a finalizer of Kubernetes, and which objects in which namespace
// show whether they can.
func knownFinalizer(finalizer, namespace string) (remover, where, what string) {
	const lease = "lease/" + kubeControllerManager
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return "the garbage collector of kube-controller-manager after everything that the object owns is deleted", metav1.NamespaceSystem, lease
	case metav1.FinalizerOrphanDependents:
		return "the garbage collector of kube-controller-manager", metav1.NamespaceSystem, lease
	case "kubernetes.io/pvc-protection":
		return "kube-controller-manager when no pod uses the claim", namespace, "pods"
	case "service.kubernetes.io/load-balancer-cleanup":
		return "the cloud controller manager after the load balancer is deleted", namespace, "events"
	case "batch.kubernetes.io/job-tracking":
		return "the job controller of kube-controller-manager", metav1.NamespaceSystem, lease
	}
	return "", "", ""
}

// finalizerManager returns the field manager that put a finalizer on an object, or "".
func finalizerManager(managed []metav1.ManagedFieldsEntry, finalizer string) string {
	for _, entry := range managed {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ok := fields.Metadata.Finalizers[fmt.Sprintf("v:%q", finalizer)]; ok {
			return entry.Manager
		}
	}
	return ""
}

// listed names the first of some things, and counts the rest.
func listed(names []string) string {
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}

// endings are the deleted objects without finalizers.
type endings struct {
	// ending are objects in their grace period, which ends at the latest at ends.
	ending []string
	ends   *metav1.Time
	// pods and others are objects after their grace period, with the earliest end of one.
	pods, others           []string
	podsSince, othersSince *metav1.Time
}

func (o Observation) endings() endings {
	var e endings
	for _, listing := range o.Content {
		for _, object := range listing.Objects {
			deleted := object.DeletionTimestamp
			switch name := listing.name() + "/" + object.Name; {
			case deleted == nil || len(object.Finalizers) > 0:
			case deleted.After(o.Time):
				e.ending = append(e.ending, name)
				if e.ends == nil || e.ends.Before(deleted) {
					e.ends = deleted
				}
			case listing.Resource.GroupResource() == corev1.Resource("pods"):
				e.pods, e.podsSince = append(e.pods, object.Name), earlier(e.podsSince, deleted)
			default:
				e.others, e.othersSince = append(e.others, name), earlier(e.othersSince, deleted)
			}
		}
	}
	return e
}

func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b.Before(a) {
		return b
	}
	return a
}

// gracePeriods reports objects that are in their grace period, or have not ended after it.
func gracePeriods(o Observation) []Finding {
	if o.phase() != Terminating {
		return nil
	}
	var found []Finding
	e := o.endings()
	if len(e.ending) > 0 {
		found = append(found, o.finding(GracePeriod, Waiting, nil,
			fmt.Sprintf("%s: the grace period ends in %s at the latest", listed(e.ending), e.ends.Sub(o.Time).Round(time.Second)), nil))
	}
	if len(e.others) > 0 {
		found = append(found, o.finding(GracePeriod, o.overdue(e.othersSince), e.othersSince, unconfirmed(e.others), words{"OBJECT": e.others[0]}))
	}
	return append(found, o.overduePods(e)...)
}

func unconfirmed(names []string) string {
	return fmt.Sprintf("%s: the grace period is over, and the end is not confirmed", listed(names))
}

// overduePods reports, by node, pods whose end the kubelet has not confirmed.
func (o Observation) overduePods(e endings) []Finding {
	nodes := map[string][]string{}
	for i := range o.Pods.Object {
		if pod := &o.Pods.Object[i]; slices.Contains(e.pods, pod.Name) {
			nodes[pod.Spec.NodeName] = append(nodes[pod.Spec.NodeName], pod.Name)
		}
	}
	if o.Pods.Err != nil {
		nodes[""] = e.pods
	}
	var found []Finding
	for node, pods := range nodes {
		message := "pods " + unconfirmed(pods)
		if node != "" {
			message += fmt.Sprintf(" by the kubelet of node %q%s", node, nodeState(o.Nodes[node]))
		}
		found = append(found, o.finding(GracePeriod, o.overdue(e.podsSince), e.podsSince, message,
			words{"POD": pods[0], "PODS": strings.Join(pods, " "), "NODE": node}))
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
	for _, condition := range node.Object.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return ", which is Ready"
		}
	}
	return ", which is not Ready"
}
