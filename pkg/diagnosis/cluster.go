/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// ListKind is the kind of a List.
const ListKind = "NamespaceDiagnosisList"

// List has the namespaces of a cluster that are not healthy.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are the namespaces, the stuck ones first, then by their first cause.
	Items []*Diagnosis `json:"items"`
	// Cluster are causes that concern every namespace, or objects without a namespace.
	Cluster []Finding `json:"cluster,omitempty"`
	// Namespaces is how many namespaces exist.
	Namespaces int `json:"namespaces"`
	// NotExamined lists what could not be read, with the reason.
	NotExamined []string `json:"notExamined,omitempty"`
}

// State returns the worst state of the namespaces and of the cluster.
func (l *List) State() State {
	state := worst(l.Cluster)
	for _, item := range l.Items {
		state = state.worse(item.State)
	}
	return state
}

// DiagnoseAll diagnoses the namespaces of the cluster that are closed or terminating, that lack required objects, whose
// NamespaceLifecycle has something to do, or that have objects whose deletion takes too long, and those that do not exist but
// have content. The error means that the namespaces cannot be listed.
func (d Diagnoser) DiagnoseAll(ctx context.Context) (*List, error) {
	w := &Watch{Diagnoser: d}
	if _, err := w.Next(ctx); err != nil {
		return nil, err
	}
	list := &w.list
	list.TypeMeta, list.Items = metav1.TypeMeta{Kind: ListKind, APIVersion: APIVersion}, []*Diagnosis{}
	for name, diagnosis := range w.seen {
		if name == clusterWide {
			list.Cluster = diagnosis.Findings
		} else {
			list.Items = append(list.Items, diagnosis)
		}
	}
	table := causes()
	slices.SortFunc(list.Items, func(a, b *Diagnosis) int {
		return cmp.Or(cmp.Compare(b.State.rank(), a.State.rank()), cmp.Compare(indexOf(table, a.Findings[0].Cause), indexOf(table, b.Findings[0].Cause)), strings.Compare(a.Namespace, b.Namespace))
	})
	return list, ctx.Err()
}

func messages(errs []error) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// clusterWide is in place of the name of a namespace for what concerns all of them, or objects without one.
const clusterWide = ""

// diagnoseCluster returns the causes that concern every namespace, or objects without a namespace, and why others may be
// missing that a later round can have.
func (r *round) diagnoseCluster(ctx context.Context) (*Diagnosis, []error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	content, claims, hooks := r.content(), r.claims(), r.hooks()
	// kubectl ignores the namespace of an object that has none.
	o := Observation{Name: metav1.NamespaceDefault, Patience: r.Patience, Installation: r.installation(), onlyDeleted: true,
		Content: content.cluster, DiscoveryErrs: content.discoveryErrs, LostClaims: claims.Object}
	r.observeUpdates(ctx, &o)
	r.observePrograms(ctx, &o)
	var problems []error
	note := func(what string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", what, err))
		}
	}
	note("aggregated APIs", o.APIServices.Err)
	if !apierrors.IsForbidden(claims.Err) { // otherwise, the content reports it
		note("lost PersistentVolumeClaims", claims.Err)
	}
	note("admission webhooks", hooks.Err)
	unserved, errs := r.unservedWebhooks(ctx, o, hooks.Object)
	problems = append(problems, errs...)
	var notExamined []string
	for _, listing := range slices.Concat(content.namespaced, content.cluster) {
		if listing.Err != nil {
			notExamined = append(notExamined, fmt.Sprintf("%s: %v", listing.name(), listing.Err))
		}
	}
	slices.Sort(notExamined)
	findings := judge(o, unavailableAPIs, undiscovered, finalizedContent, refusedUpdates, lostClaims, func(Observation) []Finding { return unserved })
	return &Diagnosis{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, State: worst(findings), Findings: findings,
		NotExamined: append(notExamined, messages(problems)...),
	}, slices.DeleteFunc(problems, apierrors.IsForbidden)
}

// unservedWebhooks reports webhooks whose service does not exist or has no server that is ready. It also returns why services
// could not be read.
func (d Diagnoser) unservedWebhooks(ctx context.Context, o Observation, hooks []Webhook) (found []Finding, problems []error) {
	type service struct {
		lack  string
		since *metav1.Time
	}
	read := map[string]service{}
	for _, h := range hooks {
		if h.ClientConfig.Service == nil {
			continue
		}
		name := h.ClientConfig.Service.Namespace + "/" + h.ClientConfig.Service.Name
		s, known := read[name]
		if !known {
			var err error
			if s.lack, s.since, err = d.Unserved(ctx, *h.ClientConfig.Service); err != nil {
				problems = append(problems, fmt.Errorf("service %s of an admission webhook: %w", name, err))
			}
			read[name] = s
		}
		if s.lack == "" {
			continue
		}
		state, effect := Stuck, "so kube-apiserver refuses "+h.reviews()
		switch {
		case h.FailurePolicy != nil && *h.FailurePolicy == admissionregistrationv1.Ignore:
			state, effect = Healthy, "and its failurePolicy is Ignore, so kube-apiserver can wait for its timeout before it accepts "+h.reviews()
		case s.since != nil:
			state = o.overdue(s.since)
		}
		found = append(found, o.finding(WebhookUnavailable, state, s.since,
			fmt.Sprintf("the service %s of the admission webhook %q of %s %s, %s", name, h.Name, h.Configuration, s.lack, effect),
			words{"WEBHOOK": {h.Configuration}, "WEBHOOKS": {h.Configuration}}))
	}
	return found, problems
}

// Unserved says why no server answers for the service of a webhook, or returns "". Since is when its last server was lost, if that
// is known.
func (c Clients) Unserved(ctx context.Context, of admissionregistrationv1.ServiceReference) (lack string, since *metav1.Time, err error) {
	service, err := c.Core.CoreV1().Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "does not exist", nil, nil
	case err != nil, service.Spec.Type == corev1.ServiceTypeExternalName:
		return "", nil, err
	}
	all, err := c.Core.DiscoveryV1().EndpointSlices(of.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{discoveryv1.LabelServiceName: of.Name}.String()})
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

// Webhook is an admission webhook, with the fields that both kinds have.
type Webhook struct {
	// Configuration is kind/name of its configuration.
	Configuration string
	admissionregistrationv1.ValidatingWebhook
}

// reviews describes the requests that a webhook reviews.
func (h Webhook) reviews() string {
	var all []string
	for _, rule := range h.Rules {
		var operations []string
		for _, operation := range rule.Operations {
			operations = append(operations, string(operation))
		}
		all = append(all, strings.Join(operations, ",")+" of "+strings.Join(rule.Resources, ","))
	}
	return counted(all)
}

// Webhooks returns the admission webhooks. With an error, some are missing.
func (c Clients) Webhooks(ctx context.Context) Answer[[]Webhook] {
	var all []Webhook
	client := c.Core.AdmissionregistrationV1()
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, configuration := range mutating.Items {
			for _, h := range configuration.Webhooks {
				all = append(all, Webhook{"mutatingwebhookconfiguration/" + configuration.Name, admissionregistrationv1.ValidatingWebhook{Name: h.Name, ClientConfig: h.ClientConfig,
					FailurePolicy: h.FailurePolicy, Rules: h.Rules, NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, MatchConditions: h.MatchConditions}})
			}
		}
	}
	validating, other := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if other == nil {
		for _, configuration := range validating.Items {
			for _, h := range configuration.Webhooks {
				all = append(all, Webhook{"validatingwebhookconfiguration/" + configuration.Name, h})
			}
		}
	}
	return Answer[[]Webhook]{Object: all, Err: errors.Join(err, other)}
}
