/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// report is what a tenant reads on the core Namespace: tenants see neither records nor
// the events in other namespaces.
type report struct {
	// initializing is the status of the condition Initializing. Where it is empty, that
	// condition is left as it is. Ready is True if it is False, and False otherwise.
	initializing corev1.ConditionStatus
	reason       string
	message      string
}

// describe returns what the conditions of the namespace should say, or nil where what they
// say is none of nsinit's business, or follows from the next step.
func describe(s state) *report {
	switch {
	case s.namespace == nil || s.record == nil:
		return nil
	case s.namespace.DeletionTimestamp != nil:
		return describeTerminating(s)
	case s.namespace.UID != s.record.Spec.NamespaceUID:
		return ifClosed(s.namespace, v1alpha1.ReasonFormerIncarnation,
			"waiting for the record of the former namespace of this name, which these participants have not let go: "+holders(s.record))
	case s.record.DeletionTimestamp != nil:
		return ifClosed(s.namespace, v1alpha1.ReasonNoRecord,
			"the record of the namespace was deleted and is created again as soon as these participants have let it go: "+holders(s.record))
	case failure(s.record) != nil:
		return &report{corev1.ConditionTrue, v1alpha1.ReasonFailed,
			fmt.Sprintf("initializer %q failed: %s; the namespace is deleted", current(s.record), failure(s.record).Message)}
	case current(s.record) != "":
		return &report{corev1.ConditionTrue, v1alpha1.ReasonPending, waitingFor(s.record, current(s.record))}
	case isClosed(s.namespace):
		return nil // said when the gate opens
	case isAdopted(s):
		return &report{corev1.ConditionFalse, v1alpha1.ReasonAdopted, "the namespace was open before nsinit knew it"}
	}
	said := opened()
	return &said
}

// describeTerminating is for a namespace that is being deleted. Until its content is gone,
// Kubernetes itself says what it waits for.
func describeTerminating(s state) *report {
	held := s.namespace.UID == s.record.Spec.NamespaceUID &&
		slices.Contains(s.namespace.Spec.Finalizers, v1alpha1.NamespaceFinalizer) &&
		!slices.Contains(s.namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	if !held || holders(s.record) == "" {
		return nil
	}
	return &report{"", v1alpha1.ReasonTerminating, "the content of the namespace is gone, these participants have not cleaned up: " + holders(s.record)}
}

// ifClosed tells why a namespace does not open. One that is open has nothing to wait for.
func ifClosed(namespace *corev1.Namespace, reason, message string) *report {
	if !isClosed(namespace) {
		return nil
	}
	return &report{corev1.ConditionTrue, reason, message}
}

// holders returns the participants that a record waits for, in quotes.
func holders(record *v1alpha1.NamespaceLifecycle) string {
	var names []string
	for _, finalizer := range record.Spec.Finalizers {
		if finalizer != v1alpha1.FinalizerKubernetes {
			names = append(names, strconv.Quote(string(finalizer)))
		}
	}
	for _, finalizer := range record.Finalizers {
		names = append(names, strconv.Quote(finalizer))
	}
	return strings.Join(names, ", ")
}

// isAdopted says whether the gate of an open namespace was never closed. The stamp and the
// condition tell that even where the record had to be created again.
func isAdopted(s state) bool {
	_, stamped := s.namespace.Annotations[v1alpha1.AnnotationCreatedBy]
	return !stamped && len(s.record.Spec.Plan) == 0 &&
		!slices.ContainsFunc(s.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonInitialized
		})
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
	ready := corev1.ConditionFalse
	if r.initializing == corev1.ConditionFalse {
		ready = corev1.ConditionTrue
	}
	changed := false
	for _, want := range []corev1.NamespaceCondition{
		{Type: v1alpha1.ConditionInitializing, Status: r.initializing},
		{Type: v1alpha1.ConditionReady, Status: ready},
	} {
		if want.Status == "" {
			continue
		}
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
