/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// populator is the initializer that applies populations.
const populator = "policy-population.nsinit.dev"

// Populated is I8: when a gate opens, the quota of the population is in force. After the faults end, each open namespace has the quota of
// the last version of the population.
func Populated(v *View) []Violation {
	quotas := map[string][]history.Event{}
	for _, key := range sortedKeys(v.Objects) {
		for _, change := range v.Objects[key] {
			if change.Object.Quota != nil && change.Object.Name == history.QuotaName {
				quotas[change.Object.Namespace] = append(quotas[change.Object.Namespace], change)
			}
		}
	}
	settled, ended := v.MarkAt(history.MarkSettled)
	wanted := v.wantedQuota()
	var all []Violation
	for _, n := range v.Incarnations() {
		lifecycle := v.complete(n.UID)
		if n.Initial || lifecycle == nil || len(n.Openings) == 0 || slices.Contains(lifecycle.Spec.Skipped, populator) ||
			!slices.ContainsFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return p.Name == populator }) {
			continue
		}
		add := func(format string, revision int64, args ...any) {
			all = append(all, Violation{Check: "I8", Namespace: n.Name, UID: n.UID, Revisions: []int64{revision}, Message: fmt.Sprintf(format, args...)})
		}
		opened := n.Openings[0].Revision
		if quota := before(quotas[n.Name], n.Created, opened); quota == nil {
			add("the gate opened without the quota of the population", opened)
		} else if !enforced(quota) {
			add("the gate opened before the quota was in force: %v of %v", opened, quota.Status.Hard, quota.Spec.Hard)
		}
		last := n.versionAt(settled.At)
		if !ended || wanted == nil || last == nil || last.Deleted || last.Object.Deleting || closed(*last) {
			continue
		}
		seen := slices.DeleteFunc(slices.Clone(quotas[n.Name]), func(change history.Event) bool { return change.Seen > settled.At })
		quota := before(seen, n.Created, math.MaxInt64)
		if quota == nil || !equality.Semantic.DeepEqual(quota.Spec.Hard, wanted) {
			add("the namespace does not have the quota %v of the population, but %v", last.Revision, wanted, quota)
		}
	}
	return all
}

// before returns the last version of a quota between two revisions, or nil.
func before(changes []history.Event, from, until int64) (quota *corev1.ResourceQuota) {
	for _, change := range changes {
		switch {
		case change.Revision < from || change.Revision > until:
		case change.Deleted:
			quota = nil
		default:
			quota = change.Object.Quota
		}
	}
	return quota
}

// enforced reports whether kube-apiserver enforces every entry of a quota.
func enforced(quota *corev1.ResourceQuota) bool {
	for name := range quota.Spec.Hard {
		if _, ok := quota.Status.Hard[name]; !ok {
			return false
		}
	}
	return true
}

// wantedQuota returns what the last version of the population defines, or nil.
func (v *View) wantedQuota() corev1.ResourceList {
	var last *v1alpha1.NamespacePopulation
	for _, event := range v.Events {
		if event.Object != nil && event.Object.Population != nil {
			last = event.Object.Population
		}
	}
	if last == nil {
		return nil
	}
	return history.QuotaOf(last)
}
