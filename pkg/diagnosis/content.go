/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

const (
	// resourcesAtOnce bounds the requests.
	resourcesAtOnce = 8
	// objectsShown bounds what is told of one resource.
	objectsShown = 100
	// namesShown bounds the names in a message.
	namesShown = 5
)

// scanned is what was found of one resource.
type scanned struct {
	resource schema.GroupVersionResource
	objects  []*metav1.PartialObjectMetadata
	err      error
}

// examineContent looks at everything that is in the namespace: what it is, and what keeps it
// there.
func (e *examination) examineContent(ctx context.Context) {
	lists, err := e.Discover()
	var groups *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &groups):
		failed := map[string]error{}
		for version, err := range groups.Groups {
			failed[version.String()] = err
		}
		e.foundDiscovery(failed)
	case err != nil:
		e.found(Finding{Cause: DiscoveryFailed, State: Stuck, Message: fmt.Sprintf("the resources of the cluster could not be discovered: %v", err),
			Remedies: []Remedy{{Description: "see what kube-apiserver answers", Command: "kubectl get --raw /apis"}}})
	}
	resources, err := utilnamespaces.Resources(lists)
	if err != nil {
		e.found(Finding{Cause: DiscoveryFailed, State: Stuck, Message: fmt.Sprintf("a server names a group or version that cannot be parsed: %v", err),
			Remedies: []Remedy{{Description: "see who serves it", Command: "kubectl get apiservices"}}})
	}
	all := e.scan(ctx, resources)
	for _, s := range all {
		if len(s.objects) > 0 {
			e.Remaining = append(e.Remaining, describe(s))
		}
		e.foundListError(s)
	}
	if e.Phase == Gone {
		e.foundOrphans()
		return
	}
	e.examineHeld(all)
	e.examineGracePeriods(ctx, all)
	e.examineDeletions(ctx, all)
}

// scan lists the objects of all resources, sorted by resource.
func (e *examination) scan(ctx context.Context, resources []schema.GroupVersionResource) []scanned {
	all := make([]scanned, len(resources))
	var mu sync.Mutex
	done := 0
	var group errgroup.Group
	group.SetLimit(resourcesAtOnce)
	for i, resource := range resources {
		group.Go(func() error {
			all[i].resource = resource
			all[i].err = utilnamespaces.EachObject(ctx, e.Metadata.Resource(resource).Namespace(e.Namespace), func(object *metav1.PartialObjectMetadata) {
				all[i].objects = append(all[i].objects, object)
			})
			mu.Lock()
			defer mu.Unlock()
			done++
			if e.Progress != nil {
				e.Progress(done, len(resources))
			}
			return nil
		})
	}
	_ = group.Wait()
	slices.SortFunc(all, func(a, b scanned) int { return strings.Compare(resourceName(a.resource), resourceName(b.resource)) })
	return all
}

// resourceName is the name of a resource as kubectl takes it.
func resourceName(resource schema.GroupVersionResource) string {
	return resource.GroupResource().String()
}

// describe tells what is left of one resource, the oldest objects first.
func describe(s scanned) Resource {
	slices.SortFunc(s.objects, func(a, b *metav1.PartialObjectMetadata) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	resource := Resource{Resource: resourceName(s.resource), Version: s.resource.Version, Count: len(s.objects)}
	for _, o := range s.objects[:min(len(s.objects), objectsShown)] {
		object := Object{Name: o.Name, UID: o.UID, CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers}
		for _, owner := range o.OwnerReferences {
			object.Owners = append(object.Owners, owner.Kind+"/"+owner.Name)
		}
		resource.Objects = append(resource.Objects, object)
	}
	return resource
}

// foundListError reports a resource that cannot be listed: neither can whoever empties the
// namespace, unless it is a matter of permission.
func (e *examination) foundListError(s scanned) {
	name := resourceName(s.resource)
	switch {
	case s.err == nil, e.broken[s.resource.GroupVersion().String()]:
	case apierrors.IsForbidden(s.err):
		e.notExamined(name, s.err)
	case errors.Is(s.err, context.Canceled), errors.Is(s.err, context.DeadlineExceeded):
		e.notExamined(name, s.err)
	default:
		e.found(Finding{Cause: ListFailed, State: Stuck, Message: fmt.Sprintf("the %s in the namespace cannot be listed (%v), so they cannot be deleted either", name, s.err),
			Remedies: []Remedy{
				{Description: "see what the server answers", Command: fmt.Sprintf("kubectl --namespace %s get %s", e.Namespace, name)},
				{Description: "if it is a conversion webhook that does not answer, mend the service that the custom resource definition names",
					Command: fmt.Sprintf("kubectl get customresourcedefinition %s --output jsonpath={.spec.conversion}", name)},
			}})
	}
}

// foundOrphans reports objects of a namespace that does not exist.
func (e *examination) foundOrphans() {
	var parts []string
	for _, resource := range e.Remaining {
		parts = append(parts, fmt.Sprintf("%d %s", resource.Count, resource.Resource))
	}
	if len(parts) == 0 {
		return
	}
	e.found(Finding{Cause: OrphanedContent, State: Stuck,
		Message: fmt.Sprintf("the namespace does not exist, but objects of it are stored (%s): its spec.finalizers were emptied before they were gone", strings.Join(parts, ", ")),
		Remedies: []Remedy{{Description: "create the namespace again and delete it, which deletes what is in it",
			Command: fmt.Sprintf("kubectl create namespace %s && kubectl delete namespace %s", e.Namespace, e.Namespace),
			Risk:    "until it is deleted, what is in it is alive: workloads start, and permissions apply"}}})
}

// held are the objects that one finalizer holds.
type held struct {
	objects []string // as resource/name
	first   string   // a command's arguments that name the first one
	since   *metav1.Time
	manager string
}

// examineHeld reports each finalizer that holds objects.
func (e *examination) examineHeld(all []scanned) {
	holders := map[string]*held{}
	for _, s := range all {
		for _, object := range s.objects {
			if object.DeletionTimestamp == nil {
				continue
			}
			for _, finalizer := range object.Finalizers {
				h := holders[finalizer]
				if h == nil {
					h = &held{first: resourceName(s.resource) + " " + object.Name, manager: finalizerManager(object.ManagedFields, finalizer)}
					holders[finalizer] = h
				}
				h.objects = append(h.objects, resourceName(s.resource)+"/"+object.Name)
				h.since = earlier(h.since, object.DeletionTimestamp)
			}
		}
	}
	for _, finalizer := range slices.Sorted(maps.Keys(holders)) {
		h := holders[finalizer]
		who, look := knownFinalizer(finalizer)
		message := fmt.Sprintf("%s %s the finalizer %q", listed(h.objects), plural(len(h.objects), "has", "have"), finalizer)
		switch {
		case who != "":
			message += ", which is removed by " + who
		case h.manager != "":
			message += fmt.Sprintf(", which was put there by %q: whoever that is has not cleaned up yet", h.manager)
		default:
			message += ": whoever put it there has not cleaned up yet"
		}
		finding := Finding{Cause: ContentFinalizer, State: e.since(h.since), Message: message, Since: h.since}
		if look != "" {
			finding.Remedies = append(finding.Remedies, Remedy{Description: "see whether it can", Command: strings.ReplaceAll(look, "NAMESPACE", e.Namespace)})
		}
		get := fmt.Sprintf("kubectl --namespace %s get %s", e.Namespace, h.first)
		finding.Remedies = append(finding.Remedies,
			Remedy{Description: "see what the object says of it", Command: get + " --output yaml --show-managed-fields"},
			Remedy{Description: "start or mend the controller that removes it; if it was uninstalled, install it again until the namespace is gone"},
			Remedy{Description: "if there is no such controller any more, take the finalizer off, object by object",
				Command: fmt.Sprintf(`%s --output json | jq '.metadata.finalizers -= ["%s"]' | kubectl replace -f -`, get, finalizer),
				Risk:    "what the controller was to clean up stays behind, perhaps outside the cluster"})
		e.found(finding)
	}
}

// knownFinalizer says who removes a finalizer of Kubernetes, and which command shows whether
// they can.
func knownFinalizer(finalizer string) (who, look string) {
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return "the garbage collector of kube-controller-manager once everything that the object owns is gone", "kubectl --namespace kube-system get lease kube-controller-manager"
	case metav1.FinalizerOrphanDependents:
		return "the garbage collector of kube-controller-manager", "kubectl --namespace kube-system get lease kube-controller-manager"
	case "kubernetes.io/pvc-protection":
		return "kube-controller-manager once no pod uses the claim", "kubectl --namespace NAMESPACE get pods"
	case "service.kubernetes.io/load-balancer-cleanup":
		return "the cloud controller manager once the load balancer is gone", "kubectl --namespace NAMESPACE get events"
	case "batch.kubernetes.io/job-tracking":
		return "the job controller of kube-controller-manager", "kubectl --namespace kube-system get lease kube-controller-manager"
	}
	return "", ""
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

func plural(count int, one, many string) string {
	if count == 1 {
		return one
	}
	return many
}
