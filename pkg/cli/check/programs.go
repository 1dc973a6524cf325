/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// rollout is how far a Deployment or a StatefulSet is.
type rollout struct {
	// name is such as deployment/nsinit-apiserver.
	name string
	// observed is whether the status is about the newest spec.
	observed                      bool
	want, all, updated, available int32
}

// complete reports whether exactly the wanted pods run, all of them new.
func (r rollout) complete() bool {
	return r.observed && r.all == r.want && r.updated == r.want && r.available == r.want
}

// programs checks whether the newest pods of each program run. An update that has not ended is a warning, because the old
// pods work.
func (i *inspection) programs(ctx context.Context) {
	const check = "Programs"
	rollouts, err := i.rollouts(ctx)
	if err != nil {
		i.unknown(check, err)
		return
	}
	var complete []string
	for _, r := range rollouts {
		found := fmt.Sprintf("%s has %d of %d pods available", r.name, min(r.available, r.want), r.want)
		remedy := "kubectl --namespace " + printable.WordOr(i.namespace, "NAMESPACE") + " rollout status " + printable.WordOr(r.name, "WORKLOAD")
		switch {
		case r.complete():
			complete = append(complete, found)
			continue
		case r.available == 0 && r.want > 0:
			i.add(check, Problem, remedy, "%s", found)
		default:
			i.add(check, Warning, remedy, "%s, %d of the newest version", found, r.updated)
			i.results[len(i.results)-1].Unfinished = true
		}
	}
	switch {
	case len(rollouts) == 0:
		i.add(check, OK, "", "namespace %s has no Deployment or StatefulSet of nsinit: the programs run elsewhere", i.namespace)
	case len(complete) == len(rollouts):
		i.add(check, OK, "", "%s", strings.Join(complete, ", "))
	}
}

// rollouts lists the workloads of nsinit.
func (i *inspection) rollouts(ctx context.Context) ([]rollout, error) {
	options := metav1.ListOptions{LabelSelector: installation.PartOf}
	deployments, err := i.Core.AppsV1().Deployments(i.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	statefulSets, err := i.Core.AppsV1().StatefulSets(i.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []rollout
	for _, d := range deployments.Items {
		all = append(all, rollout{"deployment/" + d.Name, d.Status.ObservedGeneration >= d.Generation,
			ptr.Deref(d.Spec.Replicas, 1), d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas})
	}
	for _, s := range statefulSets.Items {
		all = append(all, rollout{"statefulset/" + s.Name, s.Status.ObservedGeneration >= s.Generation,
			ptr.Deref(s.Spec.Replicas, 1), s.Status.Replicas, s.Status.UpdatedReplicas, s.Status.AvailableReplicas})
	}
	return all, nil
}
