/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
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
		if item.State.rank() > state.rank() {
			state = item.State
		}
	}
	return state
}

// DiagnoseAll diagnoses the namespaces of the cluster that are closed or terminating, that lack required objects, whose
// NamespaceLifecycle has something to do, or that have objects whose deletion takes too long, and those that do not exist but
// have content. The error means that the namespaces cannot be listed.
func (d Diagnoser) DiagnoseAll(ctx context.Context) (*List, error) {
	list := &List{TypeMeta: metav1.TypeMeta{Kind: ListKind, APIVersion: APIVersion}, Items: []*Diagnosis{}}
	d = d.newRound(ctx)
	all, err := d.suspects(ctx, list)
	if err != nil {
		return nil, err
	}
	found := d.scan(ctx, all)
	suspects := sets.List(sets.KeySet(all.versions).Union(found.orphaned).Union(found.deleted))
	d.Progress, d.deleted, d.round.scan = nil, found.deleted, found // from now on, namespaces are counted
	findings, problems := d.diagnoseCluster(ctx, found)
	list.Cluster, list.NotExamined = findings, slices.Concat(list.NotExamined, found.problems, messages(problems))
	for i, name := range suspects {
		if d.Diagnosed != nil {
			d.Diagnosed(i, len(suspects))
		}
		switch diagnosis, unread, err := d.diagnose(ctx, name); {
		case err != nil && !apierrors.IsNotFound(err):
			list.NotExamined = append(list.NotExamined, notExamined(name, err))
		case err == nil && diagnosis.State != Healthy:
			list.Items = append(list.Items, diagnosis)
		case len(unread) > 0: // otherwise, it was removed meanwhile, or does not wait any more
			list.NotExamined = append(list.NotExamined, notExamined(name, unread[0]))
		}
	}
	table := causes()
	slices.SortStableFunc(list.Items, func(a, b *Diagnosis) int {
		return cmp.Or(cmp.Compare(b.State.rank(), a.State.rank()), cmp.Compare(indexOf(table, a.Findings[0].Cause), indexOf(table, b.Findings[0].Cause)), strings.Compare(a.Namespace, b.Namespace))
	})
	return list, ctx.Err()
}

// notExamined says why a namespace, or a part of it, could not be read.
func notExamined(namespace string, err error) string {
	return fmt.Sprintf("namespace %q: %v", namespace, err)
}

func messages(errs []error) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// suspects are namespaces that may not be healthy.
type suspects struct {
	// versions has, by name, a version of what was read of the namespace and its NamespaceLifecycle.
	versions map[string]string
	// known are all namespaces that exist, and emptying those that are being deleted.
	known, emptying sets.Set[string]
}

// suspects returns the namespaces that may not be healthy. It sets the number of namespaces and what could not be read.
func (d Diagnoser) suspects(ctx context.Context, list *List) (suspects, error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	all := suspects{map[string]string{}, sets.New[string](), sets.New[string]()}
	namespaces, err := d.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return all, err
	}
	list.Namespaces = len(namespaces.Items)
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		all.known.Insert(namespace.Name)
		o := Observation{Namespace: answer(namespace, nil)}
		if o.phase() == Terminating {
			all.emptying.Insert(namespace.Name)
		}
		if o.phase() != Active || len(missingObjects(o)) > 0 {
			all.versions[namespace.Name] = namespace.ResourceVersion
		}
	}
	if lifecycles, err := d.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{}); err == nil {
		for i := range lifecycles.Items {
			if lifecycle := &lifecycles.Items[i]; lifecycle.Spec.Initializers != nil || lifecycle.DeletionTimestamp != nil || !all.known.Has(lifecycle.Name) {
				all.versions[lifecycle.Name] += " " + lifecycle.ResourceVersion
			}
		}
	} else {
		list.NotExamined = append(list.NotExamined, "NamespaceLifecycles: "+err.Error())
	}
	return all, nil
}

// round is what the diagnoses of one round share, so that each is read once.
type round struct {
	services  func() Answer[[]apiregistrationv1.APIService]
	workloads func() Answer[[]workload]
	// scan has listed the objects of namespaces, or nothing.
	scan scan
}

// newRound returns a Diagnoser whose diagnoses share what does not depend on the namespace.
func (d Diagnoser) newRound(ctx context.Context) Diagnoser {
	d.Discover = sync.OnceValues(d.Discover)
	d.round = &round{services: once(ctx, d.apiServices), workloads: once(ctx, d.readWorkloads)}
	return d
}

// once returns a function that reads once.
func once[T any](ctx context.Context, read func(context.Context) T) func() T {
	return sync.OnceValue(func() T {
		ctx, cancel := context.WithTimeout(ctx, observationTimeout)
		defer cancel()
		return read(ctx)
	})
}

// services returns the APIServices.
func (d Diagnoser) services(ctx context.Context) Answer[[]apiregistrationv1.APIService] {
	if d.round == nil {
		return d.apiServices(ctx)
	}
	return d.round.services()
}

// content returns the objects of one resource in a namespace, if the round has listed those that matter.
func (r *round) content(o Observation, resource schema.GroupVersionResource) ([]*metav1.PartialObjectMetadata, bool) {
	if r == nil || !r.scan.listed.Has(resource) || !o.onlyDeleted && !r.scan.of.emptying.Has(o.Name) && r.scan.of.known.Has(o.Name) {
		return nil, false
	}
	return r.scan.objects[place{o.Name, resource}], true
}
