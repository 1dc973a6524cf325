/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// state is the namespace and the lifecycle of one name. Each is nil if it does not exist.
type state struct {
	namespace *corev1.Namespace
	lifecycle *v1alpha1.NamespaceLifecycle
	timers    timers
	objects   objects
	// unlisted is why lifecycles cannot be listed, so that initializers and participants may not be notified. Nil: they can be.
	unlisted error
}

// action is the next step for one name. Each action is idempotent, and is taken on a state that was
// read live. Its value is part of the reason of the condition Failing.
type action string

const (
	// nothing: the controller has no next step.
	nothing action = "Nothing"
	// createLifecycle: the namespace has no lifecycle yet.
	createLifecycle action = "CreateLifecycle"
	// deleteLifecycle: the namespace of the lifecycle is being deleted, or does not exist. The
	// action starts the deletion, and completes one whose finalizers are empty already.
	deleteLifecycle action = "DeleteLifecycle"
	// releaseLifecycle: the content of the namespace is deleted, so "kubernetes" is removed from the
	// lifecycle's finalizers.
	releaseLifecycle action = "ReleaseLifecycle"
	// releaseNamespace: the lifecycle is deleted, so nsinit's finalizer is removed from the namespace.
	releaseNamespace action = "ReleaseNamespace"
	// restoreFinalizer: an administrator emptied spec.finalizers of the namespace before its content
	// was deleted. Kubernetes does not empty such a namespace, and its removal would leave the
	// content in storage. With "kubernetes" restored, it is emptied and removed.
	restoreFinalizer action = "RestoreFinalizer"
	// suspendEmptying: a participant holds the content of the namespace, and kube-controller-manager
	// would retry what the policy nsinit-content refuses. Without "kubernetes" in spec.finalizers, it
	// does not try.
	suspendEmptying action = "SuspendEmptying"
	// releaseContent: every participant that holds the content has cleaned up, so Kubernetes deletes it.
	releaseContent action = "ReleaseContent"
	// secureNamespace: it is the built-in initializer's turn.
	secureNamespace action = "SecureNamespace"
	// skipInitializer: initializers with failurePolicy Ignore have missed their deadlines.
	skipInitializer action = "SkipInitializer"
	// failInitializer: an initializer with failurePolicy Fail has missed its deadline.
	failInitializer action = "FailInitializer"
	// reportStall: the status does not show which turns or cleanups have lasted longer than --stalled-after.
	reportStall action = "ReportStall"
	// failNamespace: an initializer failed, so the namespace is deleted.
	failNamespace action = "FailNamespace"
	// openGate: every initializer is done and the required objects exist, or their absence was accepted,
	// and the gate is still closed.
	openGate action = "OpenGate"
	// withdrawReady: the namespace is being deleted, and its condition Ready is still True. This
	// action precedes every other, and needs no lifecycle.
	withdrawReady action = "WithdrawReady"
	// endInitialization: a user opened the namespace, so the pending initializers are skipped.
	endInitialization action = "EndInitialization"
)

// next returns the next step. A stall is reported only if the namespace needs nothing else.
func next(s state) action {
	step := nextOf(s)
	if step == nothing && len(stalled(s)) > 0 {
		return reportStall
	}
	return step
}

func nextOf(s state) action {
	switch {
	case s.namespace == nil && s.lifecycle == nil:
		return nothing
	case s.namespace != nil && mayWithdrawReady(s.namespace):
		return withdrawReady
	case s.lifecycle == nil && s.namespace.DeletionTimestamp == nil:
		return createLifecycle
	case s.lifecycle == nil:
		return nextWithoutLifecycle(s.namespace)
	case s.namespace == nil:
		return leave(s.lifecycle)
	case s.namespace.UID != s.lifecycle.Spec.NamespaceUID:
		step := leave(s.lifecycle)
		if step == nothing && s.namespace.DeletionTimestamp != nil {
			// The former lifecycle waits for its participants. This namespace has no
			// lifecycle, and gets none.
			return nextWithoutLifecycle(s.namespace)
		}
		return step
	case s.namespace.DeletionTimestamp != nil:
		return nextOfTerminating(s)
	case s.lifecycle.DeletionTimestamp != nil:
		// An administrator deleted the lifecycle of a live namespace. It is created again
		// after its participants have released it.
		return leave(s.lifecycle)
	case helper.Failure(s.lifecycle) != nil:
		return failNamespace
	case len(helper.Pending(s.lifecycle)) > 0:
		return nextOfInitializing(s)
	case s.objects.wait:
		return nothing
	case helper.IsClosed(s.namespace):
		return openGate
	}
	return nothing
}

// nextOfInitializing returns the next step for a namespace that has pending initializers. A missed
// deadline with failurePolicy Fail precedes the others, because a skip would start further turns.
func nextOfInitializing(s state) action {
	switch {
	case !helper.IsClosed(s.namespace):
		return endInitialization
	case helper.IsActing(s.lifecycle, v1alpha1.InitializerLifecycle):
		return secureNamespace
	case len(overdueWith(s, v1alpha1.Fail)) > 0:
		return failInitializer
	case len(overdueWith(s, v1alpha1.Ignore)) > 0:
		return skipInitializer
	}
	return nothing
}

// nextWithoutLifecycle returns the next step for a namespace that is being deleted and has no
// lifecycle. None is created.
func nextWithoutLifecycle(namespace *corev1.Namespace) action {
	switch {
	case keepsContent(namespace):
		return releaseContent
	case slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		return nothing
	case isSecured(namespace) && isEmptied(namespace):
		return releaseNamespace
	case isSecured(namespace), !hasFinalizers(namespace):
		return restoreFinalizer
	}
	return nothing
}

// nextOfTerminating returns the next step for a namespace that is being deleted. Its content is
// deleted once spec.finalizers does not have "kubernetes", unless a participant holds it. While another
// controller has a finalizer there, kube-controller-manager tries in any case.
func nextOfTerminating(s state) action {
	held := keepsContent(s.namespace) && len(helper.ContentHolders(s.lifecycle)) > 0
	switch {
	case s.lifecycle.DeletionTimestamp == nil:
		return deleteLifecycle
	case keepsContent(s.namespace) && !held:
		return releaseContent
	case held && slices.Equal(s.namespace.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}):
		return suspendEmptying
	case held, slices.Contains(s.namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		return nothing
	case isSecured(s.namespace) && !isEmptied(s.namespace):
		return restoreFinalizer
	}
	return leave(s.lifecycle)
}

// leave returns the next step for a lifecycle that nsinit need not hold: its namespace, with its content, is deleted, or it is being
// deleted itself.
func leave(lifecycle *v1alpha1.NamespaceLifecycle) action {
	switch {
	case lifecycle.DeletionTimestamp == nil:
		return deleteLifecycle
	case slices.Contains(lifecycle.Spec.Finalizers, v1alpha1.FinalizerKubernetes):
		return releaseLifecycle
	case len(lifecycle.Spec.Finalizers) == 0 && len(lifecycle.Finalizers) == 0:
		return deleteLifecycle
	}
	return nothing // participants have not cleaned up
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

// keepsContent says whether the policy nsinit-content keeps the content of a namespace once it is deleted.
func keepsContent(namespace *corev1.Namespace) bool {
	return slices.Contains(namespace.Finalizers, v1alpha1.ContentFinalizer)
}

// isEmptied says whether the namespace controller has deleted the content of a namespace that is being
// deleted. It reports so before it removes "kubernetes" from spec.finalizers. If it cannot discover or
// delete objects, it does not count them as remaining, but reports the failure.
func isEmptied(namespace *corev1.Namespace) bool {
	conditions := namespace.Status.Conditions
	for _, failure := range []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure} {
		if utilnamespaces.TrueCondition(conditions, failure) != nil {
			return false
		}
	}
	return slices.ContainsFunc(conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionFalse
	})
}

// isRemovedByWrite says whether kube-apiserver removes a namespace from storage at the next write to
// it. The content of the namespace would stay in storage.
func isRemovedByWrite(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && !hasFinalizers(namespace)
}

// hasFinalizers says whether a finalizer holds a namespace that is being deleted.
func hasFinalizers(namespace *corev1.Namespace) bool {
	return len(namespace.Spec.Finalizers) > 0 || len(namespace.Finalizers) > 0
}

// finalizersFor returns the finalizers that the plan of a lifecycle needs on its namespace.
func finalizersFor(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	var finalizers []string
	if slices.ContainsFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return p.Finalizer }) {
		finalizers = append(finalizers, v1alpha1.NamespaceFinalizer)
	}
	if slices.ContainsFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return helper.HoldsContent(&p) }) {
		finalizers = append(finalizers, v1alpha1.ContentFinalizer)
	}
	return finalizers
}
