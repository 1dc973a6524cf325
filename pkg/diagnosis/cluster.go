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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// scan is what was found by listing every object of the cluster.
type scan struct {
	// orphaned namespaces do not exist, and have content. Deleted ones have objects whose deletion takes too long.
	orphaned, deleted sets.Set[string]
	// cluster has the objects without a namespace whose deletion takes too long. listed are the resources that were listed.
	cluster []Listing
	listed  sets.Set[schema.GroupVersionResource]
	// discoveryErrs are why resources are missing.
	discoveryErrs []error
	// problems are what could not be listed, with the reason. incomplete means that one has another reason than a missing
	// permission, so a later scan can find more.
	problems   []string
	incomplete bool
}

// scan lists the metadata of every object. Namespaces and NamespaceLifecycles are diagnosed themselves.
func (d Diagnoser) scan(ctx context.Context, known sets.Set[string]) scan {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	namespaced, others, errs := d.discover()
	resources := slices.Concat(namespaced, others)
	s := scan{orphaned: sets.New[string](), deleted: sets.New[string](), listed: sets.New[schema.GroupVersionResource](), discoveryErrs: errs, incomplete: len(errs) > 0}
	now := d.now()
	var mu sync.Mutex
	done := 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(resources), func(i int) {
		orphaned, deleted, late := sets.New[string](), sets.New[string](), Listing{Resource: resources[i]}
		err := utilnamespaces.EachObject(ctx, d.Metadata.Resource(resources[i]), func(object *metav1.PartialObjectMetadata) {
			switch namespace := object.Namespace; {
			case namespace != "" && !known.Has(namespace):
				orphaned.Insert(namespace)
			case !now.isLate(object):
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
	services, err := d.APIs.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err == nil {
		o.APIServices.Object = services.Items
	} else {
		problems = append(problems, fmt.Errorf("aggregated APIs: %w", err))
	}
	d.observeRuntime(ctx, &o)
	hooks, err := d.hooks(ctx)
	if err != nil {
		problems = append(problems, fmt.Errorf("admission webhooks: %w", err))
	}
	missing, errs := d.missingServices(ctx, hooks)
	return judge(o, unavailableAPIs, undiscovered, finalizedContent, func(Observation) []Finding { return missing }), slices.Concat(problems, errs)
}

// missingServices reports webhooks whose service does not exist, and without which kube-apiserver refuses requests. It also
// returns why services could not be read.
func (d Diagnoser) missingServices(ctx context.Context, hooks []hook) (found []Finding, problems []error) {
	read := map[string]bool{}
	for _, h := range hooks {
		if h.service == nil || h.failurePolicy != nil && *h.failurePolicy == admissionregistrationv1.Ignore {
			continue
		}
		name := h.service.Namespace + "/" + h.service.Name
		if _, known := read[name]; !known {
			_, err := d.Core.CoreV1().Services(h.service.Namespace).Get(ctx, h.service.Name, metav1.GetOptions{})
			if read[name] = apierrors.IsNotFound(err); err != nil && !read[name] {
				problems = append(problems, fmt.Errorf("service %s of an admission webhook: %w", name, err))
			}
		}
		if read[name] {
			found = append(found, newFinding(WebhookUnavailable, Stuck, nil,
				fmt.Sprintf("the service %s of the admission webhook %q of %s does not exist, so kube-apiserver refuses %s", name, h.name, h.configuration, h.reviews()),
				words{"WEBHOOK": h.configuration, "WEBHOOKS": h.configuration}))
		}
	}
	return found, problems
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
	return listed(all)
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
