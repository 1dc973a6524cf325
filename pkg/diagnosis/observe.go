/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

const (
	// observationTimeout bounds an observation. kube-apiserver bounds each request, to a minute by default.
	observationTimeout = 2 * time.Minute
	// requestsAtOnce bounds the requests for content.
	requestsAtOnce = 8
	// triesEach bounds the dry-run deletions of one resource.
	triesEach = 50
)

// observe reads everything that rules need. The only error is that the namespace cannot be read; other failures are
// a part of the observation.
func (r *round) observe(ctx context.Context, name string) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	o := Observation{Name: name, Patience: r.Patience, Namespace: r.readNamespace(ctx, name)}
	if err := utilapierrors.IgnoreAbsent(o.Namespace.Err); err != nil && (r.ifDeleted || !o.partial()) {
		return o, err
	}
	o.Installation = r.installation()
	o.Lifecycle = answer(r.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{}))
	phase := o.phase()
	if phase == Initializing || r.ifDeleted || o.Lifecycle.Object != nil && phase != Active {
		o.Configurations = r.configurations()
	}
	if phase == Initializing {
		if list, err := r.Core.CoreV1().ResourceQuotas(name).List(ctx, metav1.ListOptions{}); err == nil {
			o.Quotas = list.Items
		}
	}
	if phase == Active || phase == Initializing && (o.failed() || r.ifDeleted) {
		if err := r.Core.CoreV1().Namespaces().Delete(ctx, name, dryRun(o.Namespace.Object.UID)); !isGone(err) {
			o.DeletionErr = err
		}
	}
	o.onlyDeleted = (phase == Active || phase == Initializing) && !r.ifDeleted
	if !o.onlyDeleted {
		o.NamespaceController = answer(r.Core.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, kubeControllerManager, metav1.GetOptions{}))
	}
	r.observeContent(ctx, &o)
	if phase == Gone && len(o.remaining()) > 0 { // a client can have created the namespace and its content meanwhile
		if again := r.readNamespace(ctx, name); again.Object != nil {
			return r.observe(ctx, name)
		} else if err := utilapierrors.IgnoreAbsent(again.Err); err != nil {
			return o, err
		}
	}
	if r.namespace == name { // otherwise, they are read of the cluster
		o.LostClaims = r.claims().Object // a claim that cannot be read blocks no deletion
		if o.onlyDeleted {
			r.observeObjects(ctx, &o)
		}
	}
	if r.ifDeleted && (phase == Active || phase == Initializing) {
		o = o.deleted()
	}
	r.observePrograms(ctx, &o)
	return o, nil
}

// ObserveInstallation reads the state of nsinit, and the NamespaceLifecycle of a name.
func ObserveInstallation(ctx context.Context, clients Clients, name string, now time.Time) Installation {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	i := observeInstallation(ctx, clients, now)
	i.Lifecycle = answer(clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{}))
	return i
}

// observeInstallation reads what is the same for every name.
func observeInstallation(ctx context.Context, clients Clients, now time.Time) Installation {
	i := Installation{Time: now}
	if list, err := clients.APIs.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{}); err != nil {
		i.APIServices.Err = err
	} else {
		i.APIServices.Object = list.Items
	}
	if i.APIServices.Err == nil && i.APIService() == nil {
		i.Controller = answer(findController(ctx, clients.Core))
		i.Guard = answer(clients.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, installation.GuardCreate, metav1.GetOptions{}))
	} else {
		i.Controller = answer(clients.Core.CoordinationV1().Leases(i.Namespace()).Get(ctx, installation.ControllerManager, metav1.GetOptions{}))
	}
	return i
}

// findController returns the Lease of nsinit-controller-manager in any namespace, the one that was renewed last, or NotFound.
// While nsinit has no APIService, its controllers can still run in a namespace that is not known.
func findController(ctx context.Context, core kubernetes.Interface) (*coordinationv1.Lease, error) {
	leases, err := core.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, installation.ControllerManager).String(),
	})
	if err != nil {
		return nil, err
	}
	if len(leases.Items) == 0 {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), installation.ControllerManager)
	}
	renewed := func(lease coordinationv1.Lease) time.Time {
		return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	}
	last := slices.MaxFunc(leases.Items, func(a, b coordinationv1.Lease) int { return renewed(a).Compare(renewed(b)) })
	return &last, nil
}

// observeContent reads what is in the namespace, and what is needed to judge it. Of a namespace that is not being deleted, this is
// which objects should have ended by now. Then, resources that the user may not list are left out: most users of an open namespace may
// list some resources only.
func (r *round) observeContent(ctx context.Context, o *Observation) {
	o.Content, o.DiscoveryErrs = r.in(ctx, o), r.content().discoveryErrs
	if o.onlyDeleted {
		o.listErrs, o.DiscoveryErrs = slices.Clone(o.DiscoveryErrs), nil
		for i, listing := range o.Content {
			if listing.Err != nil && !apierrors.IsForbidden(listing.Err) {
				o.listErrs = append(o.listErrs, fmt.Errorf("%s: %w", listing.name(), listing.Err))
			}
			listing.Err = nil // it blocks no deletion yet
			o.Content[i] = listing.only(func(object *metav1.PartialObjectMetadata) bool { return o.isLate(object) })
		}
		o.Content = slices.DeleteFunc(o.Content, func(listing Listing) bool { return len(listing.Objects) == 0 })
	} else if o.phase() == Gone {
		return
	} else {
		o.Deletions = r.tryDeletions(ctx, o)
	}
	r.observeUpdates(ctx, o)
	for _, listing := range o.Content {
		if listing.name() == "pods" && (r.ifDeleted && len(listing.Objects) > 0 || slices.ContainsFunc(listing.Objects, func(pod *metav1.PartialObjectMetadata) bool { return o.isOver(pod) })) {
			r.observePods(ctx, o)
		}
	}
}

// observeUpdates reads what refuses updates of objects that finalizers hold, and the webhooks if anything was refused.
func (r *round) observeUpdates(ctx context.Context, o *Observation) {
	o.Updates = r.tryUpdates(ctx, o)
	if slices.ContainsFunc(slices.Concat(o.Deletions, o.Updates), func(tried Deletion) bool { return tried.Err != nil }) {
		o.Webhooks = r.webhooks(o.Namespace.Object)
	}
}

// observePods reads the nodes of pods whose grace period is over.
func (d Diagnoser) observePods(ctx context.Context, o *Observation) {
	pods, err := d.Core.CoreV1().Pods(o.Name).List(ctx, metav1.ListOptions{})
	if o.Pods.Err = err; err != nil {
		return
	}
	o.Pods.Object, o.Nodes = pods.Items, map[string]Answer[*corev1.Node]{}
	for i := range pods.Items {
		node := pods.Items[i].Spec.NodeName
		if _, read := o.Nodes[node]; node != "" && !read && o.isOver(&pods.Items[i]) {
			o.Nodes[node] = answer(d.Core.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}))
		}
	}
}

// tryDeletions deletes, in dry runs, objects that no client has deleted.
func (d Diagnoser) tryDeletions(ctx context.Context, o *Observation) []Deletion {
	return d.try(ctx, o, o.Content, isUndeleted, func(client metadata.ResourceInterface, object *metav1.PartialObjectMetadata) error {
		return client.Delete(ctx, object.Name, dryRun(object.UID))
	})
}

// tryUpdates updates, in dry runs, objects that finalizers hold for too long. It changes no field of them, so it does not matter
// which finalizers a webhook or a policy protects.
func (d Diagnoser) tryUpdates(ctx context.Context, o *Observation) []Deletion {
	content := slices.Clone(o.Content)
	if namespace := o.Namespace.Object; namespace != nil {
		content = append(content, Listing{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Objects: []*metav1.PartialObjectMetadata{{ObjectMeta: namespace.ObjectMeta}}})
	}
	isHeld := func(object *metav1.PartialObjectMetadata) bool { return o.isLate(object) && len(object.Finalizers) > 0 }
	return d.try(ctx, o, content, isHeld, func(client metadata.ResourceInterface, object *metav1.PartialObjectMetadata) error {
		_, err := client.Patch(ctx, object.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, object.UID), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// try sends a dry run for objects for which tries is true, up to a number for each resource. It leaves out those of aggregated APIs:
// kube-apiserver passes the request on, and some of their servers delete the object in earnest.
func (d Diagnoser) try(ctx context.Context, o *Observation, content []Listing, tries func(*metav1.PartialObjectMetadata) bool,
	send func(metadata.ResourceInterface, *metav1.PartialObjectMetadata) error) []Deletion {
	var tried []Deletion
	var requests []func() error
	for _, listing := range content {
		if o.isAggregated(listing.Resource.GroupVersion()) {
			continue
		}
		objects := listing.only(tries).Objects
		for _, object := range objects[:min(len(objects), triesEach)] {
			tried = append(tried, Deletion{Object: listing.name() + "/" + object.Name})
			requests = append(requests, func() error { return send(d.Metadata.Resource(listing.Resource).Namespace(object.Namespace), object) })
		}
	}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(tried), func(i int) { tried[i].Err = requests[i]() })
	return slices.DeleteFunc(tried, func(deletion Deletion) bool { return isGone(deletion.Err) })
}

// isUndeleted reports whether no client has deleted an object.
func isUndeleted(object *metav1.PartialObjectMetadata) bool { return object.DeletionTimestamp == nil }

func dryRun(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid}}
}

// isGone reports whether the object of a deletion does not exist any more.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// webhooks returns the configurations of admission webhooks that select a namespace, by the name of the webhook. It
// leaves out those that it cannot read.
func (r *round) webhooks(namespace *corev1.Namespace) map[string][]string {
	found := map[string][]string{}
	for _, h := range r.hooks().Object {
		selector := h.NamespaceSelector
		if selector == nil {
			selector = &metav1.LabelSelector{} // the default
		}
		selects, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && (namespace == nil || selects.Matches(labels.Set(namespace.Labels))) {
			found[h.Name] = append(found[h.Name], h.Configuration)
		}
	}
	return found
}
