/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// UpdateStatus changes the status of a population. Several controllers write parts of it: after a conflict, it calls change again with
// the stored status. p is from a cache. If it was deleted meanwhile, nothing is written.
func UpdateStatus(ctx context.Context, nsinit versioned.Interface, p *v1alpha1.NamespacePopulation, change func(*v1alpha1.NamespacePopulationStatus)) error {
	client, live := nsinit.NsinitV1alpha1().NamespacePopulations(), p
	return utilapierrors.IgnoreAbsent(retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if live == nil {
			if live, err = client.Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		updated := live.DeepCopy()
		change(&updated.Status)
		updated.Status.ObservedGeneration = observedGeneration(updated.Status.Conditions)
		if live.UID != p.UID || equality.Semantic.DeepEqual(live.Status, updated.Status) {
			return nil
		}
		live = nil
		_, err = client.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		return err
	}))
}

// observedGeneration returns the lower generation that Ready and, once it is set, Applied describe. Until both describe the
// current one, a tool that reads Ready must not treat it as the state of a new spec.
func observedGeneration(conditions []metav1.Condition) int64 {
	ready, applied := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(conditions, v1alpha1.ConditionApplied)
	switch {
	case ready == nil:
		return 0
	case applied == nil:
		return ready.ObservedGeneration
	}
	return min(ready.ObservedGeneration, applied.ObservedGeneration)
}
