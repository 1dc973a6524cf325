/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
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
func (d Diagnoser) observe(ctx context.Context, name string) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	o := Observation{Name: name, Patience: d.Patience, Namespace: answer(d.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))}
	if err := utilapierrors.IgnoreAbsent(o.Namespace.Err); err != nil {
		return o, err
	}
	o.Installation = observeInstallation(ctx, d.Clients, d.services(ctx), name, d.Clock.Now())
	if o.phase() == Initializing || d.ifDeleted || o.Lifecycle.Object != nil && o.phase() != Active {
		// Without them, a namespace is diagnosed as well: they only show whether programs run.
		if list, err := d.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{}); err == nil {
			o.Configurations = list.Items
		}
	}
	phase := o.phase()
	if phase == Active || phase == Initializing && (o.failed() || d.ifDeleted) {
		if err := d.Core.CoreV1().Namespaces().Delete(ctx, name, dryRun(o.Namespace.Object.UID)); !isGone(err) {
			o.DeletionErr = err
		}
	}
	if phase == Terminating || phase == Gone || d.ifDeleted {
		o.NamespaceController = answer(d.Core.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, kubeControllerManager, metav1.GetOptions{}))
		d.observeContent(ctx, &o)
	} else if d.deleted == nil || d.deleted.Has(name) {
		d.observeDeleted(ctx, &o)
	}
	if d.round == nil { // otherwise, they are read of the cluster
		_ = d.observeClaims(ctx, &o, name) // a claim that cannot be read blocks no deletion
	}
	if d.ifDeleted && (phase == Active || phase == Initializing) {
		o = o.deleted()
	}
	d.observeWorkloads(ctx, &o)
	return o, nil
}

// ObserveInstallation reads the state of nsinit, and the NamespaceLifecycle of a name.
func ObserveInstallation(ctx context.Context, clients Clients, name string, now time.Time) Installation {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	return observeInstallation(ctx, clients, clients.apiServices(ctx), name, now)
}

func observeInstallation(ctx context.Context, clients Clients, services Answer[[]apiregistrationv1.APIService], name string, now time.Time) Installation {
	i := Installation{Time: now, APIServices: services,
		Lifecycle: answer(clients.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})),
	}
	if i.APIServices.Err == nil && i.APIService() == nil {
		i.Controller = answer(findController(ctx, clients.Core))
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
	var last *coordinationv1.Lease
	for i := range leases.Items {
		lease := &leases.Items[i]
		if last == nil || last.Spec.RenewTime == nil || lease.Spec.RenewTime != nil && last.Spec.RenewTime.Before(lease.Spec.RenewTime) {
			last = lease
		}
	}
	if last == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), installation.ControllerManager)
	}
	return last, nil
}

// observeContent reads what is in the namespace, and what is needed to judge it.
func (d Diagnoser) observeContent(ctx context.Context, o *Observation) {
	resources, _, errs := d.discover()
	o.DiscoveryErrs = errs
	if o.Content = d.list(ctx, *o, resources); o.phase() == Gone {
		return
	}
	o.Deletions = d.tryDeletions(ctx, o)
	d.observeUpdates(ctx, o)
	for _, listing := range o.Content {
		if listing.name() == "pods" && (d.ifDeleted && len(listing.Objects) > 0 || slices.ContainsFunc(listing.Objects, func(pod *metav1.PartialObjectMetadata) bool { return o.isOver(pod) })) {
			d.observePods(ctx, o)
		}
	}
}

// observeDeleted reads which objects of an open namespace are deleted, and should have ended by now. Resources that the user may
// not list are left out: most users of an open namespace may list some resources only.
func (d Diagnoser) observeDeleted(ctx context.Context, o *Observation) {
	o.onlyDeleted = true
	resources, _, errs := d.discover()
	o.listErrs = errs
	over := false
	for _, listing := range d.list(ctx, *o, resources) {
		if listing.Err != nil && !apierrors.IsForbidden(listing.Err) {
			o.listErrs = append(o.listErrs, fmt.Errorf("%s: %w", listing.name(), listing.Err))
		}
		listing.Err = nil // it blocks no deletion yet
		listing.Objects = slices.DeleteFunc(listing.Objects, func(object *metav1.PartialObjectMetadata) bool { return !o.isLate(object) })
		if len(listing.Objects) > 0 {
			o.Content = append(o.Content, listing)
			over = over || listing.name() == "pods"
		}
	}
	d.observeUpdates(ctx, o)
	if over {
		d.observePods(ctx, o)
	}
}

// observeUpdates reads what refuses updates of objects that finalizers hold, and the webhooks if anything was refused.
func (d Diagnoser) observeUpdates(ctx context.Context, o *Observation) {
	o.Updates = d.tryUpdates(ctx, *o)
	if slices.ContainsFunc(slices.Concat(o.Deletions, o.Updates), func(tried Deletion) bool { return tried.Err != nil }) {
		o.Webhooks = d.webhooks(ctx, o.Namespace.Object)
	}
}

// observeClaims reads which PersistentVolumeClaims of a namespace, or of all, are lost.
func (d Diagnoser) observeClaims(ctx context.Context, o *Observation, namespace string) error {
	claims, err := d.Core.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	o.LostClaims = map[string][]string{}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Status.Phase == corev1.ClaimLost {
			o.LostClaims[claim.Namespace] = append(o.LostClaims[claim.Namespace], claim.Name)
		}
	}
	return nil
}

// discover returns the resources that can be listed and deleted, those with namespaces and the others, and why resources are
// missing.
func (d Diagnoser) discover() (namespaced, others []schema.GroupVersionResource, errs []error) {
	lists, err := d.Discover()
	filter := func(want bool) []*metav1.APIResourceList {
		return discovery.FilteredBy(discovery.ResourcePredicateFunc(func(_ string, r *metav1.APIResource) bool { return r.Namespaced == want }), lists)
	}
	_, unparsable := utilnamespaces.Resources(lists)
	namespaced, _ = utilnamespaces.Resources(filter(true))
	others, _ = utilnamespaces.Resources(filter(false))
	return namespaced, others, slices.DeleteFunc([]error{err, unparsable}, func(err error) bool { return err == nil })
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

// list lists the objects of all resources, as far as they were not listed in this round.
func (d Diagnoser) list(ctx context.Context, o Observation, resources []schema.GroupVersionResource) []Listing {
	all := make([]Listing, len(resources))
	var mu sync.Mutex
	done := 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(all), func(i int) {
		all[i].Resource = resources[i]
		if objects, listed := d.round.content(o, resources[i]); listed {
			all[i].Objects = objects
		} else {
			all[i].Err = utilnamespaces.EachObject(ctx, d.Metadata.Resource(resources[i]).Namespace(o.Name), func(object *metav1.PartialObjectMetadata) {
				all[i].Objects = append(all[i].Objects, object)
			})
		}
		slices.SortStableFunc(all[i].Objects, func(a, b *metav1.PartialObjectMetadata) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		mu.Lock()
		defer mu.Unlock()
		if done++; d.Progress != nil {
			d.Progress(done, len(all))
		}
	})
	slices.SortFunc(all, func(a, b Listing) int { return strings.Compare(a.name(), b.name()) })
	return all
}

// tryDeletions deletes, in dry runs, objects that no client has deleted. It leaves out those of aggregated APIs: kube-apiserver
// passes the request on, and some of their servers delete the object in earnest.
func (d Diagnoser) tryDeletions(ctx context.Context, o *Observation) []Deletion {
	var tried []Deletion
	var deletions []func() error
	for _, listing := range o.Content {
		if o.isAggregated(listing.Resource.GroupVersion()) {
			continue
		}
		client, objects := d.Metadata.Resource(listing.Resource).Namespace(o.Name), undeleted(listing)
		for _, object := range objects[:min(len(objects), triesEach)] {
			tried = append(tried, Deletion{Object: listing.name() + "/" + object.Name})
			deletions = append(deletions, func() error { return client.Delete(ctx, object.Name, dryRun(object.UID)) })
		}
	}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(tried), func(i int) { tried[i].Err = deletions[i]() })
	return slices.DeleteFunc(tried, func(deletion Deletion) bool { return isGone(deletion.Err) })
}

// tryUpdates updates, in dry runs, objects that finalizers hold for too long. It changes no field of them, so it does not matter
// which finalizers a webhook or a policy protects. Other servers than kube-apiserver may ignore that it is a dry run.
func (d Diagnoser) tryUpdates(ctx context.Context, o Observation) []Deletion {
	content := slices.Clone(o.Content)
	if namespace := o.Namespace.Object; namespace != nil {
		content = append(content, Listing{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Objects: []*metav1.PartialObjectMetadata{{ObjectMeta: namespace.ObjectMeta}}})
	}
	var tried []Deletion
	var updates []func() error
	for _, listing := range content {
		held := slices.DeleteFunc(slices.Clone(listing.Objects), func(object *metav1.PartialObjectMetadata) bool {
			return !o.isLate(object) || len(object.Finalizers) == 0
		})
		if o.isAggregated(listing.Resource.GroupVersion()) {
			continue
		}
		for _, object := range held[:min(len(held), triesEach)] {
			tried = append(tried, Deletion{Object: listing.name() + "/" + object.Name})
			updates = append(updates, func() error {
				_, err := d.Metadata.Resource(listing.Resource).Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, object.UID), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			})
		}
	}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(tried), func(i int) { tried[i].Err = updates[i]() })
	return slices.DeleteFunc(tried, func(update Deletion) bool { return isGone(update.Err) })
}

// undeleted returns the objects of a listing that no client has deleted.
func undeleted(listing Listing) []*metav1.PartialObjectMetadata {
	return slices.DeleteFunc(slices.Clone(listing.Objects), func(object *metav1.PartialObjectMetadata) bool { return object.DeletionTimestamp != nil })
}

func dryRun(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid}}
}

// isGone reports whether the object of a deletion does not exist any more.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// webhooks returns the configurations of admission webhooks that select a namespace, by the name of the webhook. It
// leaves out those that it cannot read.
func (d Diagnoser) webhooks(ctx context.Context, namespace *corev1.Namespace) map[string][]string {
	found := map[string][]string{}
	hooks, _ := d.hooks(ctx)
	for _, h := range hooks {
		selector := h.namespaces
		if selector == nil {
			selector = &metav1.LabelSelector{} // the default
		}
		selects, err := metav1.LabelSelectorAsSelector(selector)
		if err == nil && (namespace == nil || selects.Matches(labels.Set(namespace.Labels))) {
			found[h.name] = append(found[h.name], h.configuration)
		}
	}
	return found
}
