/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DiagnoseDeletion returns what would block or delay a deletion of a namespace: Stuck findings block it until a user acts,
// and Waiting ones delay it. If the namespace is being deleted, the result is that of Diagnose. The error is NotFound if
// the namespace does not exist.
//
// The rules judge the observation as if the namespace had just been deleted. Dry-run deletions of its objects, and of the
// namespace itself, show what admission refuses. PodDisruptionBudgets do not matter: they limit evictions, and the
// namespace controller deletes pods.
func (d Diagnoser) DiagnoseDeletion(ctx context.Context, name string) (*Diagnosis, error) {
	d.ifDeleted = true
	o, err := d.observe(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case o.phase() == Gone:
		return nil, o.Namespace.Err
	case !o.hypothetical:
		return o.report(), ctx.Err()
	}
	diagnosis := o.report()
	diagnosis.IfDeleted, diagnosis.Phase, diagnosis.Since = true, o.actual, &o.Namespace.Object.CreationTimestamp
	diagnosis.Remaining, diagnosis.Conditions = nil, nil
	return diagnosis, ctx.Err()
}

// deleted returns the observation as it would be directly after a deletion of the namespace. Objects without finalizers
// would be removed, so they stay as they are.
func (o Observation) deleted() Observation {
	o.actual, o.hypothetical = o.phase(), true
	now := metav1.NewTime(o.Time)
	o.Namespace.Object = o.Namespace.Object.DeepCopy()
	o.Namespace.Object.DeletionTimestamp = &now
	if lifecycle := o.Lifecycle.Object; lifecycle != nil && lifecycle.DeletionTimestamp == nil {
		lifecycle = lifecycle.DeepCopy()
		lifecycle.DeletionTimestamp = &now
		o.Lifecycle.Object = lifecycle
	}
	for i := range o.Content {
		for _, object := range o.Content[i].Objects {
			if object.DeletionTimestamp == nil && len(object.Finalizers) > 0 {
				object.DeletionTimestamp = &now
			}
		}
	}
	return o
}

// longGracePeriods reports pods of a namespace that is not deleted yet which may take longer than a deletion usually does.
func longGracePeriods(o Observation) []Finding {
	if !o.hypothetical {
		return nil
	}
	var pods []string
	longest := time.Duration(0)
	for i := range o.Pods.Object {
		if pod := &o.Pods.Object[i]; pod.DeletionTimestamp == nil && pod.Spec.TerminationGracePeriodSeconds != nil {
			if period := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; period > o.Patience {
				pods, longest = append(pods, "pods/"+pod.Name), max(longest, period)
			}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	return []Finding{o.finding(GracePeriod, Waiting, nil, fmt.Sprintf("%s: may take up to %s to end", listed(pods), longest), words{"PODS": pods})}
}

// yet is the end of a sentence about what a controller has to remove.
func (o Observation) yet(subject string) string {
	if o.hypothetical {
		return subject + " would have to remove"
	}
	return subject + " has not removed yet"
}
