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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// ListKind is the kind of a List.
const ListKind = "NamespaceDiagnosisList"

// List has the namespaces of a cluster that are not healthy.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are the namespaces, the stuck ones first, then by their first cause.
	Items []*Diagnosis `json:"items"`
	// Namespaces is how many namespaces exist.
	Namespaces int `json:"namespaces"`
	// NotExamined lists what could not be read, with the reason.
	NotExamined []string `json:"notExamined,omitempty"`
}

// DiagnoseAll diagnoses the namespaces of the cluster that are closed or terminating, or whose NamespaceLifecycle has
// something to do, and those that do not exist but have content. The error means that the namespaces cannot be listed.
func (d Diagnoser) DiagnoseAll(ctx context.Context) (*List, error) {
	list := &List{TypeMeta: metav1.TypeMeta{Kind: ListKind, APIVersion: APIVersion}, Items: []*Diagnosis{}}
	suspects, err := d.suspects(ctx, list)
	if err != nil {
		return nil, err
	}
	d.Progress, d.lists = nil, &runtimeLists{} // from now on, namespaces are counted
	for i, name := range suspects {
		if d.Diagnosed != nil {
			d.Diagnosed(i, len(suspects))
		}
		switch diagnosis, err := d.Diagnose(ctx, name); {
		case apierrors.IsNotFound(err): // it was removed meanwhile
		case err != nil:
			list.NotExamined = append(list.NotExamined, fmt.Sprintf("namespace %q: %v", name, err))
		case diagnosis.State != Healthy:
			list.Items = append(list.Items, diagnosis)
		}
	}
	table := causes()
	slices.SortStableFunc(list.Items, func(a, b *Diagnosis) int {
		return cmp.Or(cmp.Compare(b.State.rank(), a.State.rank()), cmp.Compare(indexOf(table, a.Findings[0].Cause), indexOf(table, b.Findings[0].Cause)), strings.Compare(a.Namespace, b.Namespace))
	})
	return list, ctx.Err()
}

// suspects returns the names of namespaces that may not be healthy, sorted. It sets the number of namespaces and what could
// not be read.
func (d Diagnoser) suspects(ctx context.Context, list *List) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, observationTimeout)
	defer cancel()
	suspects, known := sets.New[string](), sets.New[string]()
	namespaces, err := d.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	list.Namespaces = len(namespaces.Items)
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		known.Insert(namespace.Name)
		if helper.IsClosed(namespace) || namespace.DeletionTimestamp != nil {
			suspects.Insert(namespace.Name)
		}
	}
	if lifecycles, err := d.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{}); err == nil {
		for i := range lifecycles.Items {
			if lifecycle := &lifecycles.Items[i]; lifecycle.Spec.Initializers != nil || lifecycle.DeletionTimestamp != nil || !known.Has(lifecycle.Name) {
				suspects.Insert(lifecycle.Name)
			}
		}
	} else {
		list.NotExamined = append(list.NotExamined, "NamespaceLifecycles: "+err.Error())
	}
	orphaned, errs := d.orphanedNames(ctx, known)
	list.NotExamined = append(list.NotExamined, errs...)
	return sets.List(suspects.Union(orphaned)), nil
}

// orphanedNames returns the names of namespaces that have content and do not exist, and what could not be listed.
func (d Diagnoser) orphanedNames(ctx context.Context, known sets.Set[string]) (sets.Set[string], []string) {
	lists, err := d.Discover()
	resources, unparsable := utilnamespaces.Resources(lists)
	var mu sync.Mutex
	names, problems := sets.New[string](), []string{}
	for _, err := range []error{err, unparsable} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	done := 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), requestsAtOnce, len(resources), func(i int) {
		found := sets.New[string]()
		err := utilnamespaces.EachObject(ctx, d.Metadata.Resource(resources[i]), func(object *metav1.PartialObjectMetadata) {
			if object.Namespace != "" && !known.Has(object.Namespace) {
				found.Insert(object.Namespace)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		names = names.Union(found)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", resources[i].GroupResource(), err))
		}
		if done++; d.Progress != nil {
			d.Progress(done, len(resources))
		}
	})
	slices.Sort(problems)
	return names, problems
}
