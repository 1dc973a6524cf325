/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// report is what a tenant reads on the core Namespace: tenants see neither records nor
// the events in other namespaces.
type report struct {
	initializing corev1.ConditionStatus
	reason       string
	message      string
}

// describe returns what the conditions of the namespace should say, or nil where they are
// none of nsinit's business or say it already.
func describe(s state) *report {
	if s.namespace == nil || s.namespace.DeletionTimestamp != nil || s.record == nil {
		return nil
	}
	if s.namespace.UID != s.record.Spec.NamespaceUID || s.record.DeletionTimestamp != nil {
		if !isClosed(s.namespace) {
			return nil
		}
		return &report{corev1.ConditionTrue, v1alpha1.ReasonFormerIncarnation,
			fmt.Sprintf("waiting for the record of the former namespace of this name, which these participants have not let go: %q", s.record.Spec.Finalizers)}
	}
	if result := failure(s.record); result != nil {
		return &report{corev1.ConditionTrue, v1alpha1.ReasonFailed,
			fmt.Sprintf("initializer %q failed: %s; the namespace is deleted", current(s.record), result.Message)}
	}
	if name := current(s.record); name != "" {
		return &report{corev1.ConditionTrue, v1alpha1.ReasonPending, waitingFor(s.record, name)}
	}
	if isClosed(s.namespace) || isReady(s.namespace) {
		return nil // said when the gate opens, or said already
	}
	return &report{corev1.ConditionFalse, v1alpha1.ReasonAdopted, "the namespace was open before nsinit knew it"}
}

// waitingFor says who is being waited for, since when, and what it last said.
func waitingFor(record *v1alpha1.NamespaceLifecycle, name string) string {
	total := len(record.Spec.Plan)
	text := fmt.Sprintf("waiting for initializer %q (%d of %d)", name, total-len(record.Spec.Initializers.Pending)+1, total)
	i := slices.IndexFunc(record.Status.Initializers, func(s v1alpha1.InitializerStatus) bool { return s.Name == name })
	if i < 0 {
		return text
	}
	entry := record.Status.Initializers[i]
	if entry.StartTime != nil {
		text += " since " + entry.StartTime.UTC().Format(time.RFC3339)
	}
	if entry.Message != "" {
		text += ": " + entry.Message
	}
	return text
}

// opened is what the conditions say once the gate is open.
func opened() report {
	return report{corev1.ConditionFalse, v1alpha1.ReasonInitialized, "every initializer is done"}
}

// apply writes a report into the conditions of a namespace, and says whether that changed
// anything. Conditions of others are kept.
func (r report) apply(namespace *corev1.Namespace, now time.Time) bool {
	ready := corev1.ConditionTrue
	if r.initializing == corev1.ConditionTrue {
		ready = corev1.ConditionFalse
	}
	changed := false
	for _, want := range []corev1.NamespaceCondition{
		{Type: v1alpha1.ConditionInitializing, Status: r.initializing},
		{Type: v1alpha1.ConditionReady, Status: ready},
	} {
		want.Reason, want.Message = r.reason, r.message
		changed = setCondition(&namespace.Status.Conditions, want, now) || changed
	}
	return changed
}

func setCondition(conditions *[]corev1.NamespaceCondition, want corev1.NamespaceCondition, now time.Time) bool {
	want.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(*conditions, func(c corev1.NamespaceCondition) bool { return c.Type == want.Type })
	if i < 0 {
		*conditions = append(*conditions, want)
		return true
	}
	was := (*conditions)[i]
	if was.Status == want.Status && was.Reason == want.Reason && was.Message == want.Message {
		return false
	}
	if was.Status == want.Status {
		want.LastTransitionTime = was.LastTransitionTime
	}
	(*conditions)[i] = want
	return true
}

func isReady(namespace *corev1.Namespace) bool {
	return slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == corev1.ConditionTrue
	})
}
