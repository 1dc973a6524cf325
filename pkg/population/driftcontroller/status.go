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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// reportStatus tells what came of a population.
func (c *Controller) reportStatus(ctx context.Context, name string) error {
	population, err := c.populations.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := c.records.List(labels.Everything())
	if err != nil {
		return err
	}
	updated := population.DeepCopy()
	updated.Status = statusOf(population, records)
	if condition, checked := c.ready.Load(name); checked {
		meta.SetStatusCondition(&updated.Status.Conditions, condition.(metav1.Condition))
	}
	if equality.Semantic.DeepEqual(population.Status, updated.Status) {
		return nil
	}
	_, err = c.Nsinit.NsinitV1alpha1().NamespacePopulations().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// checkReadiness checks whether a population could be applied to a new namespace, and has its status report that.
func (c *Controller) checkReadiness(ctx context.Context, name string) error {
	population, err := c.populations.Get(name)
	if apierrors.IsNotFound(err) {
		c.ready.Delete(name)
		return nil
	}
	if err != nil {
		return err
	}
	condition := c.Readiness(ctx, population)
	c.ready.Store(name, condition)
	c.statuses.Add(name)
	again := resync
	if condition.Status != metav1.ConditionTrue {
		again = recheck
	}
	c.readiness.AddAfter(name, again)
	return nil
}

// statusOf counts what came of each manifest of a population.
func statusOf(population *v1alpha1.NamespacePopulation, records []*v1alpha1.PopulatedNamespace) v1alpha1.NamespacePopulationStatus {
	status := v1alpha1.NamespacePopulationStatus{ObservedGeneration: population.Generation, Conditions: slices.Clone(population.Status.Conditions)}
	manifests := map[string]*v1alpha1.PopulationManifestStatus{}
	for _, manifest := range population.Spec.Manifests {
		manifests[manifest.Name] = &v1alpha1.PopulationManifestStatus{Name: manifest.Name}
	}
	records = slices.SortedFunc(slices.Values(records), func(a, b *v1alpha1.PopulatedNamespace) int { return cmp.Compare(a.Name, b.Name) })
	for _, record := range records {
		concerned := false
		for _, entry := range record.Status.Objects {
			manifest := manifests[entry.Manifest]
			if entry.Population != population.Name || manifest == nil {
				continue
			}
			concerned = true
			switch entry.State {
			case v1alpha1.PopulatedObjectApplied:
				manifest.Applied++
			case v1alpha1.PopulatedObjectFailed:
				if manifest.Failed++; manifest.Failed == 1 {
					manifest.Message, manifest.Namespace = entry.Message, record.Name
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
		if result.Failed > 0 && condition.Status == metav1.ConditionTrue {
			condition.Status, condition.Reason = metav1.ConditionFalse, "ManifestFailed"
			condition.Message = fmt.Sprintf("manifest %s, in %d namespaces, of which %s: %s", result.Name, result.Failed, result.Namespace, result.Message)
		}
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}
