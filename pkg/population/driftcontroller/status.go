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

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
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
	return c.updateStatus(ctx, name, func(population *v1alpha1.NamespacePopulation) {
		population.Status = statusOf(population, inventories)
		if meta.IsStatusConditionFalse(population.Status.Conditions, v1alpha1.ConditionApplied) {
			c.readiness.AddAfter(name, recheck) // perhaps a kind or a permission was removed
		}
	})
}

// checkReadiness reports whether a population could be applied to a new namespace, and queues the next check. If it can be applied
// again, namespaces do not wait for their next attempt.
func (c *Controller) checkReadiness(ctx context.Context, name string) error {
	recovered := false
	err := c.updateStatus(ctx, name, func(population *v1alpha1.NamespacePopulation) {
		condition, again := c.Readiness(ctx, population), resync
		if condition.Status != metav1.ConditionTrue {
			again = recheck
		}
		c.readiness.AddAfter(name, again)
		before := meta.FindStatusCondition(population.Status.Conditions, v1alpha1.ConditionReady)
		recovered = condition.Status == metav1.ConditionTrue && before != nil && before.Status != metav1.ConditionTrue && before.Reason != v1alpha1.ReasonNotObserved
		meta.SetStatusCondition(&population.Status.Conditions, condition)
	})
	if err == nil && recovered {
		c.Retry()
		c.enqueueAll()
	}
	return err
}

// updateStatus writes the status of a population if change changes it.
func (c *Controller) updateStatus(ctx context.Context, name string, change func(*v1alpha1.NamespacePopulation)) error {
	population, err := c.populations.Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	updated := population.DeepCopy()
	change(updated)
	updated.Status.ObservedGeneration = observedGeneration(updated.Status.Conditions)
	if !equality.Semantic.DeepEqual(population.Status, updated.Status) {
		_, err = c.Nsinit.NsinitV1alpha1().NamespacePopulations().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	}
	return utilapierrors.IgnoreAbsent(err)
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

// statusOf returns the status of a population from the inventories of all namespaces.
func statusOf(population *v1alpha1.NamespacePopulation, inventories []*v1alpha1.PopulatedNamespace) v1alpha1.NamespacePopulationStatus {
	status := v1alpha1.NamespacePopulationStatus{Conditions: slices.Clone(population.Status.Conditions), Rollout: population.Status.Rollout}
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
