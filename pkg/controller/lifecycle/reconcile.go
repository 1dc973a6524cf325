/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// state is what the controller knows of one name: the namespace and the record, each nil
// if there is none.
type state struct {
	namespace *corev1.Namespace
	record    *v1alpha1.NamespaceLifecycle
	// turn is what time has made of the current initializer's turn.
	turn turn
}

// action is the next step for one name. Each is idempotent, and each is taken on a state
// that was read live.
type action string

const (
	// nothing: the next step is somebody else's.
	nothing action = "Nothing"
	// createRecord: the namespace has no record yet.
	createRecord action = "CreateRecord"
	// deleteRecord: the namespace that the record describes is going, or gone. It
	// begins the deletion, and ends one whose finalizers are empty already.
	deleteRecord action = "DeleteRecord"
	// releaseRecord: nothing of the namespace's content is left, so "kubernetes" leaves
	// the record's finalizers.
	releaseRecord action = "ReleaseRecord"
	// releaseNamespace: the record has left, so nsinit's finalizer leaves the namespace.
	releaseNamespace action = "ReleaseNamespace"
	// restoreFinalizer: an administrator emptied spec.finalizers of the namespace before its
	// content was deleted. Kubernetes does not empty such a namespace, and its removal would
	// leave the content in storage. With "kubernetes" back, it is emptied and removed.
	restoreFinalizer action = "RestoreFinalizer"
	// secureNamespace: it is the built-in initializer's turn.
	secureNamespace action = "SecureNamespace"
	// skipInitializer: the deadline of an initializer is past whose failurePolicy is
	// Ignore.
	skipInitializer action = "SkipInitializer"
	// failInitializer: the deadline of an initializer is past whose failurePolicy is
	// Fail.
	failInitializer action = "FailInitializer"
	// reportStall: the turn of an initializer has lasted for long.
	reportStall action = "ReportStall"
	// failNamespace: an initializer failed, so the namespace is deleted.
	failNamespace action = "FailNamespace"
	// openGate: every initializer is done, and the gate is still closed.
	openGate action = "OpenGate"
	// withdrawReady: the namespace is being deleted, and its condition Ready is still
	// True. It comes before every other step, and needs no record.
	withdrawReady action = "WithdrawReady"
	// endInitialization: the namespace was opened by hand, so the initializers that are
	// still pending are skipped.
	endInitialization action = "EndInitialization"
)

// next returns the next step.
func next(s state) action {
	switch {
	case s.namespace == nil && s.record == nil:
		return nothing
	case s.namespace != nil && mayWithdrawReady(s.namespace):
		return withdrawReady
	case s.record == nil && s.namespace.DeletionTimestamp == nil:
		return createRecord
	case s.record == nil:
		return nextWithoutRecord(s.namespace)
	case s.namespace == nil:
		return nextOfFormer(s.record)
	case s.namespace.UID != s.record.Spec.NamespaceUID:
		step := nextOfFormer(s.record)
		if step == nothing && s.namespace.DeletionTimestamp != nil {
			// The former record waits for its participants. They are none of
			// this namespace's, which has no record and never will.
			return nextWithoutRecord(s.namespace)
		}
		return step
	case s.namespace.DeletionTimestamp != nil:
		return nextOfTerminating(s)
	case s.record.DeletionTimestamp != nil:
		// Somebody privileged deleted the record of a live namespace. It leaves
		// when its participants have let it go, and is created anew.
		return leave(s.record)
	case helper.Failure(s.record) != nil:
		return failNamespace
	case helper.Current(s.record) != "" && !helper.IsClosed(s.namespace):
		return endInitialization
	case helper.Current(s.record) == v1alpha1.InitializerLifecycle:
		return secureNamespace
	case s.turn.overdue && *helper.Planned(s.record, helper.Current(s.record)).FailurePolicy == v1alpha1.Ignore:
		return skipInitializer
	case s.turn.overdue:
		return failInitializer
	case s.turn.stalled && stall(s.record) == nil:
		return reportStall
	case helper.Current(s.record) == "" && helper.IsClosed(s.namespace):
		return openGate
	}
	return nothing
}

// nextWithoutRecord is for a namespace that is being deleted and has no record any more, or
// never had one. It gets none.
func nextWithoutRecord(namespace *corev1.Namespace) action {
	switch {
	case slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		return nothing
	case isSecured(namespace) && isEmptied(namespace):
		return releaseNamespace
	case isSecured(namespace), !hasFinalizers(namespace):
		return restoreFinalizer
	}
	return nothing
}

// nextOfFormer is for a record whose namespace is gone. Of its content, nothing is left.
func nextOfFormer(record *v1alpha1.NamespaceLifecycle) action {
	if record.DeletionTimestamp == nil {
		return deleteRecord
	}
	return leave(record)
}

// nextOfTerminating is for a namespace that is being deleted. Its content is gone when
// "kubernetes" has left its finalizers.
func nextOfTerminating(s state) action {
	switch {
	case s.record.DeletionTimestamp == nil:
		return deleteRecord
	case slices.Contains(s.namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		return nothing
	case isSecured(s.namespace) && !isEmptied(s.namespace):
		return restoreFinalizer
	}
	return leave(s.record)
}

// leave is for a record that is being deleted and that nsinit itself need not hold.
func leave(record *v1alpha1.NamespaceLifecycle) action {
	switch {
	case slices.Contains(record.Spec.Finalizers, v1alpha1.FinalizerKubernetes):
		return releaseRecord
	case len(record.Spec.Finalizers) == 0 && len(record.Finalizers) == 0:
		return deleteRecord
	}
	return nothing // participants have not cleaned up
}

// stall returns the condition that says that the current turn has lasted for long, or nil.
func stall(record *v1alpha1.NamespaceLifecycle) *metav1.Condition {
	condition := meta.FindStatusCondition(record.Status.Conditions, v1alpha1.ConditionStalled)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}

// mayWithdrawReady says whether a namespace that is being deleted claims to be ready, and can be
// written to.
func mayWithdrawReady(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && !isRemovedByWrite(namespace) &&
		utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady) != nil
}

// isSecured says whether nsinit's finalizer holds a namespace, or will once it is deleted.
func isSecured(namespace *corev1.Namespace) bool {
	return slices.Contains(namespace.Finalizers, v1alpha1.NamespaceFinalizer)
}

// isEmptied says whether the namespace controller has deleted the content of a namespace that is being
// deleted. It reports so before it removes "kubernetes" from spec.finalizers.
func isEmptied(namespace *corev1.Namespace) bool {
	return slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionFalse
	})
}

// isRemovedByWrite says whether kube-apiserver removes a namespace at the next write to it, whatever
// the write changes. Its content would stay in storage.
func isRemovedByWrite(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && !hasFinalizers(namespace)
}

// hasFinalizers says whether anything holds a namespace that is being deleted.
func hasFinalizers(namespace *corev1.Namespace) bool {
	return len(namespace.Spec.Finalizers) > 0 || len(namespace.Finalizers) > 0
}

// hasParticipants says whether somebody acts when the namespace is deleted.
func hasParticipants(record *v1alpha1.NamespaceLifecycle) bool {
	return slices.ContainsFunc(record.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return p.Finalizer })
}
