/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// round has what is read once for all namespaces that are diagnosed together, each when it is first needed.
type round struct {
	Diagnoser
	// namespace is the only one that is diagnosed, or "".
	namespace      string
	installation   func() Installation
	configurations func() []v1alpha1.NamespaceInitializerConfiguration
	content        func() *content
	claims         func() Answer[map[string][]string]
	workloads      func() Answer[[]workload]
	hooks          func() Answer[[]Webhook]
}

// content are the objects in the namespace of a round, or those of the cluster that matter, by resource.
type content struct {
	namespaced, cluster []Listing
	// discoveryErrs are why resources are missing.
	discoveryErrs []error
}

// newRound returns a round for a namespace, or for all. It keeps objects for which keep is true.
func (d Diagnoser) newRound(ctx context.Context, namespace string, keep func(*metav1.PartialObjectMetadata) bool) *round {
	return &round{
		Diagnoser: d, namespace: namespace,
		installation:   once(ctx, func(ctx context.Context) Installation { return observeInstallation(ctx, d.Clients, d.Clock.Now()) }),
		configurations: once(ctx, d.readConfigurations),
		content:        once(ctx, func(ctx context.Context) *content { return d.readContent(ctx, namespace, keep) }),
		claims:         once(ctx, func(ctx context.Context) Answer[map[string][]string] { return answer(d.readLostClaims(ctx, namespace)) }),
		workloads:      once(ctx, d.readWorkloads),
		hooks:          once(ctx, d.Webhooks),
	}
}

// once returns a function that reads once.
func once[T any](ctx context.Context, read func(context.Context) T) func() T {
	return sync.OnceValue(func() T {
		ctx, cancel := context.WithTimeout(ctx, observationTimeout)
		defer cancel()
		return read(ctx)
	})
}

// newRoundOfAll returns a round with the names of the namespaces that may not be healthy. It sets the number of namespaces in the
// list, and what could not be read. Of open namespaces, and without a namespace, only objects matter whose deletion takes too long.
func (d Diagnoser) newRoundOfAll(ctx context.Context, list *List) (*round, sets.Set[string], error) {
	bounded, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	namespaces, err := d.Core.CoreV1().Namespaces().List(bounded, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	list.Namespaces = len(namespaces.Items)
	known, emptying, suspects := sets.New(""), sets.New[string](), sets.New[string]()
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		known.Insert(namespace.Name)
		o := Observation{Namespace: answer(namespace, nil)}
		if o.phase() == Terminating {
			emptying.Insert(namespace.Name)
		}
		if o.phase() != Active || len(missingObjects(o)) > 0 {
			suspects.Insert(namespace.Name)
		}
	}
	if lifecycles, err := d.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(bounded, metav1.ListOptions{}); err == nil {
		for _, lifecycle := range lifecycles.Items {
			if lifecycle.Spec.Initializers != nil || lifecycle.DeletionTimestamp != nil || !known.Has(lifecycle.Name) {
				suspects.Insert(lifecycle.Name)
			}
		}
	} else {
		list.NotExamined = append(list.NotExamined, "NamespaceLifecycles: "+err.Error())
	}
	now := Observation{Patience: d.Patience, Installation: Installation{Time: d.Clock.Now()}}
	r := d.newRound(ctx, metav1.NamespaceAll, func(object *metav1.PartialObjectMetadata) bool {
		return !known.Has(object.Namespace) || emptying.Has(object.Namespace) || now.isLate(object)
	})
	for _, listing := range r.content().namespaced {
		for _, object := range listing.Objects {
			suspects.Insert(object.Namespace)
		}
	}
	return r, suspects, nil
}

// readConfigurations lists the configurations. Without them, a namespace is diagnosed as well: they only show whether programs run.
func (d Diagnoser) readConfigurations(ctx context.Context) []v1alpha1.NamespaceInitializerConfiguration {
	list, err := d.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// readLostClaims returns which PersistentVolumeClaims of a namespace, or of all, are lost.
func (d Diagnoser) readLostClaims(ctx context.Context, namespace string) (map[string][]string, error) {
	claims, err := d.Core.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	lost := map[string][]string{}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Status.Phase == corev1.ClaimLost {
			lost[claim.Namespace] = append(lost[claim.Namespace], claim.Name)
		}
	}
	return lost, nil
}

// readContent lists the metadata of every object in a namespace or, for "", of the cluster. It leaves out namespaces and
// NamespaceLifecycles, which are diagnosed themselves.
func (d Diagnoser) readContent(ctx context.Context, namespace string, keep func(*metav1.PartialObjectMetadata) bool) *content {
	lists, err := d.Discover()
	_, unparsable := utilnamespaces.Resources(lists)
	c := &content{discoveryErrs: slices.DeleteFunc([]error{err, unparsable}, func(err error) bool { return err == nil })}
	resources := resourcesOf(lists, true)
	namespaced := len(resources)
	if namespace == metav1.NamespaceAll {
		resources = append(resources, slices.DeleteFunc(resourcesOf(lists, false), func(resource schema.GroupVersionResource) bool {
			name := resource.GroupResource().String()
			return name == "namespaces" || name == "namespacelifecycles.nsinit.dev"
		})...)
	}
	all := make([]Listing, len(resources))
	var mu sync.Mutex
	done := 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(all), func(i int) {
		all[i] = d.list(ctx, resources[i], namespace, keep)
		mu.Lock()
		defer mu.Unlock()
		if done++; d.Progress != nil {
			d.Progress(done, len(all))
		}
	})
	c.namespaced, c.cluster = all[:namespaced:namespaced], all[namespaced:]
	return c
}

// resourcesOf returns the resources, with namespaces or without, whose objects can be listed and deleted, sorted by name.
func resourcesOf(lists []*metav1.APIResourceList, namespaced bool) []schema.GroupVersionResource {
	matches := func(_ string, resource *metav1.APIResource) bool { return resource.Namespaced == namespaced }
	resources, _ := utilnamespaces.Resources(discovery.FilteredBy(discovery.ResourcePredicateFunc(matches), lists))
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	return resources
}

// list lists the objects of a resource in a namespace, or in all. It keeps objects for which keep is true.
func (d Diagnoser) list(ctx context.Context, resource schema.GroupVersionResource, namespace string, keep func(*metav1.PartialObjectMetadata) bool) Listing {
	listing := Listing{Resource: resource}
	listing.Err = utilnamespaces.EachObject(ctx, d.Metadata.Resource(resource).Namespace(namespace), func(object *metav1.PartialObjectMetadata) {
		if keep(object) {
			listing.Objects = append(listing.Objects, object)
		}
	})
	slices.SortStableFunc(listing.Objects, func(a, b *metav1.PartialObjectMetadata) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return listing
}

// everything keeps all objects.
func everything(*metav1.PartialObjectMetadata) bool { return true }

// in returns the content of a namespace. If it is being deleted or does not exist, resources that cannot be listed in the cluster are
// listed in the namespace. So are those with objects of a namespace that does not exist any more: Kubernetes can have removed it after
// the list.
func (r *round) in(ctx context.Context, o *Observation) (all []Listing) {
	for _, listing := range r.content().namespaced {
		own := listing.only(func(object *metav1.PartialObjectMetadata) bool { return object.Namespace == o.Name })
		if r.namespace == metav1.NamespaceAll && !o.onlyDeleted && (listing.Err != nil || o.phase() == Gone && len(own.Objects) > 0) {
			own = r.list(ctx, listing.Resource, o.Name, everything)
		}
		all = append(all, own)
	}
	return all
}

// keep adds the objects without a namespace that an earlier round found of resources that cannot be listed now. It returns all.
func (c *content) keep(earlier []Listing) []Listing {
	for _, listing := range earlier {
		i := slices.IndexFunc(c.cluster, func(l Listing) bool { return l.Resource == listing.Resource })
		switch {
		case i < 0 && len(c.discoveryErrs) > 0:
			c.cluster = append(c.cluster, listing)
		case i >= 0 && c.cluster[i].Err != nil:
			c.cluster[i].Objects = listing.Objects
		}
	}
	return c.cluster
}
