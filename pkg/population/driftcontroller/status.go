/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package driftcontroller

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// Reasons of the condition Applied if it is False. A manifest that failed comes first: an object in conflict may stay as it is.
const (
	reasonFailed   = "ManifestFailed"
	reasonConflict = "ManifestConflict"
)

// reportStatus reports what was applied of a population.
func (c *Controller) reportStatus(ctx context.Context, name string) error {
	inventories, err := c.inventories.List(labels.Everything())
	if err != nil {
		return err
	}
	p, err := c.populations.Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	return population.UpdateStatus(ctx, c.Nsinit, p, func(status *v1alpha1.NamespacePopulationStatus) {
		*status = statusOf(p, *status, inventories)
		if meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionApplied) {
			c.readiness.AddAfter(name, recheck) // perhaps a kind or a permission was removed
		}
	})
}

// checkReadiness reports whether a population could be applied to a new namespace, and queues the next check. If it can be applied
// again, namespaces do not wait for their next attempt.
func (c *Controller) checkReadiness(ctx context.Context, name string) error {
	p, err := c.populations.Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	condition, again := c.Readiness(ctx, p), resync
	if condition.Status != metav1.ConditionTrue {
		again = recheck
	}
	c.readiness.AddAfter(name, again)
	if err := population.UpdateStatus(ctx, c.Nsinit, p, func(status *v1alpha1.NamespacePopulationStatus) {
		meta.SetStatusCondition(&status.Conditions, condition)
	}); err != nil {
		return err
	}
	before := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if condition.Status == metav1.ConditionTrue && before != nil && before.Status != metav1.ConditionTrue && before.Reason != v1alpha1.ReasonNotObserved {
		c.Retry()
		c.enqueueAll()
	}
	return nil
}

// statusOf returns the status of a population after another one, from the inventories of all namespaces.
func statusOf(population *v1alpha1.NamespacePopulation, former v1alpha1.NamespacePopulationStatus, inventories []*v1alpha1.PopulatedNamespace) v1alpha1.NamespacePopulationStatus {
	status := v1alpha1.NamespacePopulationStatus{Conditions: slices.Clone(former.Conditions), Rollout: former.Rollout}
	manifests, conflicts := map[string]*v1alpha1.PopulationManifestStatus{}, map[string]int32{}
	for _, manifest := range population.Spec.Manifests {
		manifests[manifest.Name] = &v1alpha1.PopulationManifestStatus{Name: manifest.Name}
	}
	inventories = slices.SortedFunc(slices.Values(inventories), func(a, b *v1alpha1.PopulatedNamespace) int { return cmp.Compare(a.Name, b.Name) })
	for _, inventory := range inventories {
		concerned := false
		for _, entry := range inventory.Status.Objects {
			manifest := manifests[entry.Manifest]
			if entry.Population != population.Name || manifest == nil {
				continue
			}
			concerned = true
			switch entry.State {
			case v1alpha1.PopulatedObjectApplied:
				manifest.Applied++
			case v1alpha1.PopulatedObjectConflict:
				conflicts[entry.Manifest]++
				fallthrough
			case v1alpha1.PopulatedObjectFailed:
				if manifest.Failed++; manifest.Failed == 1 {
					manifest.Message, manifest.Namespace = entry.Message, inventory.Name
				}
			case v1alpha1.PopulatedObjectPending:
			}
		}
		if concerned {
			status.Namespaces++
		}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: population.Generation,
		Message: "every manifest could be applied"}
	for _, manifest := range population.Spec.Manifests {
		result := manifests[manifest.Name]
		status.Manifests = append(status.Manifests, *result)
		reason := reasonFailed
		if result.Failed == conflicts[manifest.Name] {
			reason = reasonConflict
		}
		if result.Failed > 0 && (condition.Status == metav1.ConditionTrue || condition.Reason == reasonConflict && reason == reasonFailed) {
			condition.Status, condition.Reason = metav1.ConditionFalse, reason
			condition.Message = fmt.Sprintf("manifest %s, in %d namespaces, of which %s: %s", result.Name, result.Failed, result.Namespace, result.Message)
		}
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}
