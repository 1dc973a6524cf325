/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
)

// begin gives a new record its status: every planned initializer waits, and the first
// pending one has its turn.
func begin(record *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	record.Status = nsinit.NamespaceLifecycleStatus{}
	for _, planned := range record.Spec.Plan {
		record.Status.Initializers = append(record.Status.Initializers, nsinit.InitializerStatus{
			Name:  planned.Name,
			State: nsinit.InitializerWaiting,
		})
	}
	settle(record, now, actor)
}

// settle derives the status from what is pending: who is done, whose turn it is, and
// what phase and conditions follow. Messages stay as they are. Whatever it finds
// settled already, it leaves alone.
func settle(record *nsinit.NamespaceLifecycle, now time.Time, actor string) {
	pending := validation.Pending(record)
	stamp := metav1.NewMicroTime(now)
	failed := failure(record)

	for i := range record.Status.Initializers {
		entry := &record.Status.Initializers[i]
		ended := entry.EndTime != nil
		turn := len(pending) > 0 && pending[0].Name == entry.Name
		waits := slices.Contains(pending, nsinit.NamespaceInitializer{Name: entry.Name})
		switch {
		case !waits && !ended:
			entry.State, entry.EndTime, entry.LastActor = nsinit.InitializerDone, &stamp, actor
		case turn && failed != nil && !ended:
			entry.State, entry.EndTime, entry.LastActor = nsinit.InitializerFailed, &stamp, actor
			entry.Message = failed.Message
		case turn && entry.StartTime == nil:
			entry.State, entry.StartTime = nsinit.InitializerRunning, &stamp
			entry.Deadline = deadline(record, entry.Name, now)
		}
	}

	record.Status.CurrentInitializer = ""
	switch {
	case record.DeletionTimestamp != nil:
		record.Status.Phase = nsinit.LifecycleTerminating
		setConditions(record, now, metav1.ConditionFalse, v1alpha1.ReasonTerminating, "the namespace is being deleted")
	case failed != nil:
		record.Status.Phase = nsinit.LifecycleInitializing
		setConditions(record, now, metav1.ConditionTrue, v1alpha1.ReasonFailed,
			fmt.Sprintf("initializer %q failed: %s", pending[0].Name, failed.Message))
	case len(pending) > 0:
		record.Status.Phase = nsinit.LifecycleInitializing
		record.Status.CurrentInitializer = pending[0].Name
		setConditions(record, now, metav1.ConditionTrue, v1alpha1.ReasonPending,
			fmt.Sprintf("waiting for initializer %q (%d of %d)", pending[0].Name, len(record.Spec.Plan)-len(pending)+1, len(record.Spec.Plan)))
	default:
		record.Status.Phase = nsinit.LifecycleActive
		reason, message := v1alpha1.ReasonInitialized, "every initializer is done"
		if len(record.Spec.Plan) == 0 {
			message = "no initializer was planned for this namespace"
		}
		setConditions(record, now, metav1.ConditionFalse, reason, message)
	}
}

// setConditions writes both conditions. A namespace is ready when it is neither
// initializing nor being deleted.
func setConditions(record *nsinit.NamespaceLifecycle, now time.Time, initializing metav1.ConditionStatus, reason, message string) {
	ready := metav1.ConditionTrue
	if initializing == metav1.ConditionTrue || record.DeletionTimestamp != nil {
		ready = metav1.ConditionFalse
	}
	for _, condition := range []metav1.Condition{
		{Type: v1alpha1.ConditionInitializing, Status: initializing},
		{Type: v1alpha1.ConditionReady, Status: ready},
	} {
		condition.Reason, condition.Message = reason, message
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&record.Status.Conditions, condition)
	}
}

// deadline returns when the named initializer's failurePolicy takes effect, if it has
// its turn from now on. Without a policy there is none.
func deadline(record *nsinit.NamespaceLifecycle, name string, now time.Time) *metav1.MicroTime {
	for _, planned := range record.Spec.Plan {
		if planned.Name == name && planned.FailurePolicy != nil && planned.TimeoutSeconds != nil {
			at := metav1.NewMicroTime(now.Add(time.Duration(*planned.TimeoutSeconds) * time.Second))
			return &at
		}
	}
	return nil
}

// failure returns the result that ended the initialization, or nil.
func failure(record *nsinit.NamespaceLifecycle) *metav1.Status {
	initializers := record.Spec.Initializers
	if initializers == nil || initializers.Result == nil || initializers.Result.Status != metav1.StatusFailure || len(initializers.Pending) == 0 {
		return nil
	}
	return initializers.Result
}

// normalize makes nil of an empty list, which means the same.
func normalize(record *nsinit.NamespaceLifecycle) {
	if initializers := record.Spec.Initializers; initializers != nil && len(initializers.Pending) == 0 && initializers.Result == nil {
		record.Spec.Initializers = nil
	}
}
