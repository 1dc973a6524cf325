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
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// scan is what was found by listing every object of the cluster.
type scan struct {
	// orphaned namespaces do not exist, and have content. Deleted ones have objects whose deletion takes too long.
	orphaned, deleted sets.Set[string]
	// cluster has the objects without a namespace whose deletion takes too long. listed are the resources that were listed.
	cluster []Listing
	listed  sets.Set[schema.GroupVersionResource]
	// objects are those of namespaces that are emptying or do not exist. Of other namespaces, they are those whose deletion takes
	// too long. of are the namespaces when the scan began.
	objects map[place][]*metav1.PartialObjectMetadata
	of      suspects
	// discoveryErrs are why resources are missing.
	discoveryErrs []error
	// problems are what could not be listed, with the reason. incomplete means that one has another reason than a missing
	// permission, so a later scan can find more.
	problems   []string
	incomplete bool
}

// place is where objects are.
type place struct {
	namespace string
	resource  schema.GroupVersionResource
}

// scan lists the metadata of every object. Namespaces and NamespaceLifecycles are diagnosed themselves.
func (d Diagnoser) scan(ctx context.Context, all suspects) scan {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	namespaced, others, errs := d.discover()
	resources := slices.Concat(namespaced, others)
	s := scan{objects: map[place][]*metav1.PartialObjectMetadata{}, of: all, orphaned: sets.New[string](), deleted: sets.New[string](), listed: sets.New[schema.GroupVersionResource](), discoveryErrs: errs, incomplete: len(errs) > 0}
	now := d.now()
	var mu sync.Mutex
	done := 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(resources), func(i int) {
		orphaned, deleted, late := sets.New[string](), sets.New[string](), Listing{Resource: resources[i]}
		objects := map[string][]*metav1.PartialObjectMetadata{}
		err := utilnamespaces.EachObject(ctx, d.Metadata.Resource(resources[i]), func(object *metav1.PartialObjectMetadata) {
			namespace := object.Namespace
			isOrphaned, isLate := namespace != "" && !all.known.Has(namespace), now.isLate(object)
			if isOrphaned || isLate || all.emptying.Has(namespace) {
				objects[namespace] = append(objects[namespace], object)
			}
			switch {
			case isOrphaned:
				orphaned.Insert(namespace)
			case !isLate:
			case namespace != "":
				deleted.Insert(namespace)
			case late.name() != "namespaces" && late.name() != "namespacelifecycles.nsinit.dev":
				late.Objects = append(late.Objects, object)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		s.orphaned, s.deleted = s.orphaned.Union(orphaned), s.deleted.Union(deleted)
		if len(late.Objects) > 0 {
			s.cluster = append(s.cluster, late)
		}
		if err == nil {
			s.listed.Insert(resources[i])
			for namespace, objects := range objects {
				s.objects[place{namespace, resources[i]}] = objects
			}
		} else {
			s.problems = append(s.problems, fmt.Sprintf("%s: %v", resources[i].GroupResource(), err))
			s.incomplete = s.incomplete || !apierrors.IsForbidden(err)
		}
		if done++; d.Progress != nil {
			d.Progress(done, len(resources))
		}
	})
	slices.SortFunc(s.cluster, func(a, b Listing) int { return strings.Compare(a.name(), b.name()) })
	slices.Sort(s.problems)
	return s
}

// now returns an observation of nothing but the time.
func (d Diagnoser) now() Observation {
	return Observation{Patience: d.Patience, Installation: Installation{Time: d.Clock.Now()}}
}

// keep adds what an earlier scan found of resources that could not be listed. Namespaces are kept until a scan is complete.
func (s *scan) keep(earlier scan) {
	if s.incomplete {
		s.orphaned, s.deleted = s.orphaned.Union(earlier.orphaned), s.deleted.Union(earlier.deleted)
	}
	for _, listing := range earlier.cluster {
		if !s.listed.Has(listing.Resource) {
			s.cluster = append(s.cluster, listing)
		}
	}
}

// again reads the APIs and the objects without a namespace of a scan again, and no other objects.
func (d Diagnoser) again(ctx context.Context, s scan) scan {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	_, _, s.discoveryErrs = d.discover()
	now := d.now()
	before := s.cluster
	s.cluster = nil
	for _, listing := range before {
		late := Listing{Resource: listing.Resource}
		if err := utilnamespaces.EachObject(ctx, d.Metadata.Resource(listing.Resource), func(object *metav1.PartialObjectMetadata) {
			if now.isLate(object) {
				late.Objects = append(late.Objects, object)
			}
		}); err != nil && !apierrors.IsNotFound(err) { // the API is served
			late = listing
		}
		if len(late.Objects) > 0 {
			s.cluster = append(s.cluster, late)
		}
	}
	return s
}

// diagnoseCluster returns the causes that concern every namespace, or objects without a namespace, and why others may be
// missing.
func (d Diagnoser) diagnoseCluster(ctx context.Context, s scan) ([]Finding, []error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	// kubectl ignores the namespace of an object that has none.
	o := Observation{Name: metav1.NamespaceDefault, Patience: d.Patience, onlyDeleted: true, Content: s.cluster, DiscoveryErrs: s.discoveryErrs}
	o.Installation.Time = d.Clock.Now()
	var problems []error
	note := func(what string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", what, err))
		}
	}
	o.APIServices = d.services(ctx)
	note("aggregated APIs", o.APIServices.Err)
	d.observeUpdates(ctx, &o)
	if err := d.observeClaims(ctx, &o, metav1.NamespaceAll); !apierrors.IsForbidden(err) { // otherwise, the scan reports it
		note("lost PersistentVolumeClaims", err)
	}
	d.observeWorkloads(ctx, &o)
	hooks, err := d.hooks(ctx)
	note("admission webhooks", err)
	unserved, errs := d.unservedWebhooks(ctx, o, hooks)
	return judge(o, unavailableAPIs, undiscovered, finalizedContent, refusedUpdates, lostClaims, func(Observation) []Finding { return unserved }), slices.Concat(problems, errs)
}

// unservedWebhooks reports webhooks whose service does not exist or has no server that is ready. It also returns why services
// could not be read.
func (d Diagnoser) unservedWebhooks(ctx context.Context, o Observation, hooks []hook) (found []Finding, problems []error) {
	type service struct {
		lack  string
		since *metav1.Time
	}
	read := map[string]service{}
	for _, h := range hooks {
		if h.service == nil {
			continue
		}
		name := h.service.Namespace + "/" + h.service.Name
		s, known := read[name]
		if !known {
			var err error
			if s.lack, s.since, err = d.unserved(ctx, h.service.Namespace, h.service.Name); err != nil {
				problems = append(problems, fmt.Errorf("service %s of an admission webhook: %w", name, err))
			}
			read[name] = s
		}
		if s.lack == "" {
			continue
		}
		state, effect := Stuck, "so kube-apiserver refuses "+h.reviews()
		switch {
		case h.failurePolicy != nil && *h.failurePolicy == admissionregistrationv1.Ignore:
			state, effect = Healthy, "and its failurePolicy is Ignore, so kube-apiserver can wait for its timeout before it accepts "+h.reviews()
		case s.since != nil:
			state = o.overdue(s.since)
		}
		found = append(found, o.finding(WebhookUnavailable, state, s.since,
			fmt.Sprintf("the service %s of the admission webhook %q of %s %s, %s", name, h.name, h.configuration, s.lack, effect),
			words{"WEBHOOK": {h.configuration}, "WEBHOOKS": {h.configuration}}))
	}
	return found, problems
}

// unserved says why no server answers for a service, or returns "". Since is when its last server was lost, if that is known.
func (d Diagnoser) unserved(ctx context.Context, namespace, name string) (lack string, since *metav1.Time, err error) {
	service, err := d.Core.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "does not exist", nil, nil
	case err != nil, service.Spec.Type == corev1.ServiceTypeExternalName:
		return "", nil, err
	}
	all, err := d.Core.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{discoveryv1.LabelServiceName: name}.String()})
	if err != nil || len(all.Items) == 0 { // without slices, no controller reports the servers of the service
		return "", nil, err
	}
	for _, slice := range all.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				return "", nil, nil
			}
		}
		for _, entry := range slice.ManagedFields {
			if since == nil || since.Before(entry.Time) {
				since = entry.Time
			}
		}
	}
	return "has no server that is ready", since, nil
}

// hook is an admission webhook.
type hook struct {
	name string
	// configuration is kind/name of its configuration.
	configuration string
	namespaces    *metav1.LabelSelector
	service       *admissionregistrationv1.ServiceReference
	failurePolicy *admissionregistrationv1.FailurePolicyType
	rules         []admissionregistrationv1.RuleWithOperations
}

// reviews describes the requests that a webhook reviews.
func (h hook) reviews() string {
	var all []string
	for _, rule := range h.rules {
		var operations []string
		for _, operation := range rule.Operations {
			operations = append(operations, string(operation))
		}
		all = append(all, strings.Join(operations, ",")+" of "+strings.Join(rule.Resources, ","))
	}
	return counted(all)
}

// hooks returns the admission webhooks. An error means that some are missing.
func (d Diagnoser) hooks(ctx context.Context) ([]hook, error) {
	var all []hook
	client := d.Core.AdmissionregistrationV1()
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, configuration := range mutating.Items {
			for i := range configuration.Webhooks {
				h := &configuration.Webhooks[i]
				all = append(all, hook{h.Name, "mutatingwebhookconfiguration/" + configuration.Name, h.NamespaceSelector, h.ClientConfig.Service, h.FailurePolicy, h.Rules})
			}
		}
	}
	validating, other := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if other == nil {
		for _, configuration := range validating.Items {
			for i := range configuration.Webhooks {
				h := &configuration.Webhooks[i]
				all = append(all, hook{h.Name, "validatingwebhookconfiguration/" + configuration.Name, h.NamespaceSelector, h.ClientConfig.Service, h.FailurePolicy, h.Rules})
			}
		}
	}
	return all, errors.Join(err, other)
}
