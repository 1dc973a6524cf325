/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

const (
	// reasonConflict: another client owns the objects that could not be applied, or some of
	// their fields. You can leave the objects as they are. If an object also failed for another
	// cause, the reason is ManifestFailed.
	reasonConflict = "ManifestConflict"

	// eventPaused: the rollout of the NamespacePopulation was paused.
	eventPaused = "RolloutPaused"
	// eventComplete: the rollout of the NamespacePopulation is complete.
	eventComplete = "RolloutComplete"
)

// report is what the workers report of a population.
type report struct {
	uid types.UID
	// ready is the condition Ready, rolledOut the condition RolledOut, and rollout what this describes. Conditions are nil until they
	// are known: the status keeps those that another process wrote.
	ready, rolledOut *metav1.Condition
	rollout          *v1alpha1.PopulationRolloutStatus
}

// report changes what is reported of a population, and queues its status.
func (c *Controller) report(p *v1alpha1.NamespacePopulation, change func(*report)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reports[p.Name]
	if r.uid != p.UID {
		r = report{uid: p.UID}
	}
	change(&r)
	c.reports[p.Name] = r
	c.statuses.Add(p.Name)
}

// reportRollout reports the state of a rollout, and records an event when the rollout pauses or completes.
func (c *Controller) reportRollout(p *v1alpha1.NamespacePopulation, status *v1alpha1.PopulationRolloutStatus, condition metav1.Condition) {
	former := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	c.report(p, func(r *report) {
		former = cmp.Or(r.rolledOut, former)
		r.rollout, r.rolledOut = status, &condition
	})
	switch {
	case former != nil && former.Reason == condition.Reason:
	case condition.Reason == v1alpha1.ReasonRolloutPaused:
		c.Events.Event(p, corev1.EventTypeWarning, eventPaused, condition.Message)
	case condition.Reason == v1alpha1.ReasonRolloutComplete:
		c.Events.Event(p, corev1.EventTypeNormal, eventComplete, condition.Message)
	}
}

// checkReadiness reports whether a population could be applied to a new namespace, and queues the next check. If it can be applied
// again, namespaces do not wait for their next attempt.
func (c *Controller) checkReadiness(ctx context.Context, name string) error {
	p, err := c.populations.Get(name)
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	condition, again := c.Populator.Readiness(ctx, p), resync
	if condition.Status != metav1.ConditionTrue {
		again = recheckReady
	}
	c.readiness.AddAfter(name, again)
	c.report(p, func(r *report) { r.ready = &condition })
	before := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if condition.Status == metav1.ConditionTrue && before != nil && before.Status != metav1.ConditionTrue && before.Reason != v1alpha1.ReasonNotObserved {
		c.Retry()
		c.enqueueAll()
	}
	return nil
}

// writeStatus writes the status of a population. It also follows the kinds of objects whose drift is repaired.
func (c *Controller) writeStatus(ctx context.Context, name string) error {
	inventories, _ := c.inventories.List(labels.Everything()) // a lister returns no error
	p, err := c.populations.Get(name)
	c.mu.Lock()
	if err != nil {
		delete(c.reports, name)
	}
	known := c.reports[name]
	c.mu.Unlock()
	if err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	var errs []error
	for kind := range repairedKinds(name, inventories) {
		errs = append(errs, c.follow(ctx, kind))
	}
	updated := p.DeepCopy()
	updated.Status = appliedTo(p, inventories)
	if meta.IsStatusConditionFalse(updated.Status.Conditions, v1alpha1.ConditionApplied) && !equality.Semantic.DeepEqual(p.Status.Manifests, updated.Status.Manifests) {
		c.readiness.AddAfter(name, recheckReady) // perhaps a kind or a permission was removed
	}
	known.addTo(p, &updated.Status)
	if !equality.Semantic.DeepEqual(p.Status, updated.Status) {
		_, err = c.Nsinit.NsinitV1alpha1().NamespacePopulations().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		errs = append(errs, utilapierrors.IgnoreAbsent(err))
	}
	return errors.Join(errs...)
}

// addTo adds what is reported to the status of a population.
func (r report) addTo(p *v1alpha1.NamespacePopulation, status *v1alpha1.NamespacePopulationStatus) {
	if r.uid == p.UID && r.ready != nil {
		meta.SetStatusCondition(&status.Conditions, *r.ready)
	}
	switch {
	case p.Spec.Scope != v1alpha1.ScopeAll:
		status.Rollout = nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRolledOut)
	case r.uid == p.UID && r.rolledOut != nil:
		status.Rollout = r.rollout
		meta.SetStatusCondition(&status.Conditions, *r.rolledOut)
	}
	status.ObservedGeneration = observedGeneration(status.Conditions)
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

// repairedKinds returns the kinds of the objects of a population whose drift is repaired.
func repairedKinds(name string, inventories []*v1alpha1.PopulatedNamespace) sets.Set[schema.GroupVersionKind] {
	kinds := sets.New[schema.GroupVersionKind]()
	for _, inventory := range inventories {
		for _, entry := range inventory.Status.Objects {
			if entry.Population == name && entry.ContentHash != "" && entry.UID != inventory.Spec.NamespaceUID { // the namespaces are watched
				kinds.Insert(schema.FromAPIVersionAndKind(entry.APIVersion, entry.Kind))
			}
		}
	}
	return kinds
}

// appliedTo returns the status of a population with what was applied of it, from the inventories of all namespaces.
func appliedTo(p *v1alpha1.NamespacePopulation, inventories []*v1alpha1.PopulatedNamespace) v1alpha1.NamespacePopulationStatus {
	status := v1alpha1.NamespacePopulationStatus{Conditions: slices.Clone(p.Status.Conditions), Rollout: p.Status.Rollout}
	manifests, conflicts := map[string]*v1alpha1.PopulationManifestStatus{}, map[string]int32{}
	for _, manifest := range population.Manifests(&p.Spec) {
		manifests[manifest.Name] = &v1alpha1.PopulationManifestStatus{Name: manifest.Name}
	}
	inventories = slices.SortedFunc(slices.Values(inventories), func(a, b *v1alpha1.PopulatedNamespace) int { return cmp.Compare(a.Name, b.Name) })
	for _, inventory := range inventories {
		concerned := false
		for _, entry := range inventory.Status.Objects {
			manifest := manifests[entry.Manifest]
			if entry.Population != p.Name || manifest == nil {
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
	condition := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: population.ReasonApplied, ObservedGeneration: p.Generation,
		Message: "every manifest could be applied"}
	for _, manifest := range population.Manifests(&p.Spec) {
		result := manifests[manifest.Name]
		status.Manifests = append(status.Manifests, *result)
		reason := population.ReasonFailed
		if result.Failed == conflicts[manifest.Name] {
			reason = reasonConflict
		}
		if result.Failed > 0 && (condition.Status == metav1.ConditionTrue || condition.Reason == reasonConflict && reason == population.ReasonFailed) {
			condition.Status, condition.Reason = metav1.ConditionFalse, reason
			condition.Message = fmt.Sprintf("manifest %s, in %d namespaces, of which %s: %s", result.Name, result.Failed, result.Namespace, result.Message)
		}
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}
