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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
	list := &List{TypeMeta: metav1.TypeMeta{Kind: ListKind, APIVersion: APIVersion}, Items: []*Diagnosis{}}
	r, suspects, err := d.newRoundOfAll(ctx, list)
	if err != nil {
		return nil, err
	}
	cluster, _ := r.diagnoseCluster(ctx)
	list.Cluster, list.NotExamined = cluster.Findings, append(list.NotExamined, cluster.NotExamined...)
	for i, name := range sets.List(suspects) {
		if d.Diagnosed != nil {
			d.Diagnosed(i, len(suspects))
		}
		switch diagnosis, unread, err := r.diagnose(ctx, name); {
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
