/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// take takes a step on a state that was read live.
func (c *Controller) take(ctx context.Context, step action, s state) error {
	switch step {
	case createLifecycle:
		return c.createLifecycle(ctx, s.namespace)
	case deleteLifecycle:
		// gofail: var lifecycleBeforeDeleteLifecycle struct{}
		return utilapierrors.IgnoreAbsent(c.client.Delete(ctx, s.lifecycle.Name, *metav1.NewPreconditionDeleteOptions(string(s.lifecycle.UID))))
	case releaseLifecycle:
		lifecycle := s.lifecycle.DeepCopy()
		lifecycle.Spec.Finalizers = slices.DeleteFunc(lifecycle.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerKubernetes })
		// gofail: var lifecycleBeforeReleaseLifecycle struct{}
		_, err := c.client.Finalize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{})
		return utilapierrors.IgnoreAbsent(err)
	case releaseNamespace:
		namespace := s.namespace.DeepCopy()
		namespace.Finalizers = slices.DeleteFunc(namespace.Finalizers, func(f string) bool { return f == v1alpha1.NamespaceFinalizer })
		// gofail: var lifecycleBeforeReleaseNamespace struct{}
		return c.finalize(ctx, namespace)
	case restoreFinalizer:
		namespace := s.namespace.DeepCopy()
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
		// gofail: var lifecycleBeforeRestoreFinalizer struct{}
		return c.finalize(ctx, namespace)
	case suspendEmptying:
		namespace := s.namespace.DeepCopy()
		namespace.Spec.Finalizers = nil
		// gofail: var lifecycleBeforeSuspendEmptying struct{}
		return c.finalize(ctx, namespace)
	case releaseContent:
		return c.releaseContent(ctx, s)
	case secureNamespace:
		return c.secureNamespace(ctx, s)
	case failNamespace:
		return c.failNamespace(ctx, s)
	case openGate:
		return c.openGate(ctx, s)
	case skipInitializer, failInitializer:
		return c.applyFailurePolicy(ctx, s)
	case reportStall:
		return c.reportStall(ctx, s)
	case endInitialization:
		return c.endInitialization(ctx, s)
	case withdrawReady: // report withdraws it
	}
	return c.report(ctx, s)
}

// finalize writes the finalizers of a namespace.
func (c *Controller) finalize(ctx context.Context, namespace *corev1.Namespace) error {
	_, err := c.Core.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	return utilapierrors.IgnoreAbsent(err)
}

// errExists means that the lifecycle exists, but the cache does not have it yet.
var errExists = errors.New("the NamespaceLifecycle exists")

// createLifecycle creates the lifecycle of a namespace, or returns errExists. A refusal is reported
// on the namespace, because tenants cannot read NamespaceLifecycles.
func (c *Controller) createLifecycle(ctx context.Context, namespace *corev1.Namespace) error {
	creating, cancel := context.WithTimeout(ctx, timing.CreateTimeout)
	defer cancel()
	// gofail: var lifecycleBeforeCreateLifecycle struct{}
	created, err := c.client.Create(creating, &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
		Spec:       v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespace.UID},
	}, metav1.CreateOptions{})
	// gofail: var lifecycleAfterCreateLifecycle struct{}
	switch {
	case err == nil:
		c.Metrics.lifecycles.Inc()
		c.expect(created.ResourceVersion)
		return nil
	case apierrors.IsAlreadyExists(err):
		return errExists
	case utilapierrors.IsAbsent(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The name is re-queued by an event of the namespace, unless the server read a former namespace of this name.
		c.queue.AddAfter(namespace.Name, cacheDelay)
		return nil
	case !helper.IsClosed(namespace) || apierrors.IsConflict(err):
		return fmt.Errorf("cannot create the NamespaceLifecycle: %w", err)
	}
	refusal := report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonNoLifecycle,
		message: fmt.Sprintf("nsinit cannot determine which initializers the namespace needs, and retries: %v", explain(err))}
	if reportErr := c.write(ctx, namespace, refusal); reportErr != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write the conditions of the namespace", "err", reportErr)
	}
	return fmt.Errorf("cannot create the NamespaceLifecycle: %w", err)
}

// secureNamespace acts as the built-in initializer. Once the namespace has nsinit's finalizer, it is
// not removed before its participants have cleaned up.
func (c *Controller) secureNamespace(ctx context.Context, s state) error {
	if err := c.addFinalizers(ctx, s); err != nil {
		return utilapierrors.IgnoreAbsent(err) // the event of the deletion re-queues the name
	}
	lifecycle := s.lifecycle.DeepCopy()
	helper.RemovePending(lifecycle, v1alpha1.InitializerLifecycle)
	// gofail: var lifecycleBeforeRemoveBuiltIn struct{}
	if _, err := c.client.Initialize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{}); utilapierrors.IgnoreAbsent(err) != nil {
		return fmt.Errorf("cannot remove initializer %q: %w", v1alpha1.InitializerLifecycle, err)
	}
	return nil
}

// releaseContent removes the finalizer that keeps the content, and restores "kubernetes", in one write: no
// write may leave a namespace with content that no finalizer holds.
func (c *Controller) releaseContent(ctx context.Context, s state) error {
	namespace := s.namespace.DeepCopy()
	namespace.Finalizers = slices.DeleteFunc(namespace.Finalizers, func(f string) bool { return f == v1alpha1.ContentFinalizer })
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	// gofail: var lifecycleBeforeReleaseContent struct{}
	_, err := c.Core.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	if err == nil {
		klog.FromContext(ctx).Info("Released the content of the namespace", "uid", namespace.UID)
	}
	return utilapierrors.IgnoreAbsent(err)
}

// missingFinalizers returns the finalizers that a namespace needs for its participants and does not have.
func missingFinalizers(s state) []string {
	return slices.DeleteFunc(finalizersFor(s.lifecycle), func(f string) bool { return slices.Contains(s.namespace.Finalizers, f) })
}

// addFinalizers adds nsinit's finalizer to a namespace that has participants, and the finalizer that keeps the content if
// one of them holds it.
func (c *Controller) addFinalizers(ctx context.Context, s state) error {
	missing := missingFinalizers(s)
	if len(missing) == 0 {
		return nil
	}
	namespace := s.namespace.DeepCopy()
	namespace.Finalizers = append(namespace.Finalizers, missing...)
	// gofail: var lifecycleBeforeSecureNamespace struct{}
	secured, err := c.Core.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("cannot add finalizers %q to the namespace: %w", missing, err)
	}
	for _, finalizer := range missing {
		if !slices.Contains(secured.Finalizers, finalizer) {
			return fmt.Errorf("kube-apiserver dropped finalizer %q from the update of the namespace: check the admission policies and webhooks for namespaces", finalizer)
		}
	}
	return nil
}

// endInitialization skips the pending initializers of a namespace that a user opened. Participants
// still clean up after it, so the finalizers are added first. The lifecycle stores the user before
// the list of pending initializers is removed. Each of the writes can be retried.
func (c *Controller) endInitialization(ctx context.Context, s state) error {
	if err := c.addFinalizers(ctx, s); err != nil {
		return utilapierrors.IgnoreAbsent(err)
	}
	lifecycle, message := s.lifecycle.DeepCopy(), openedByHandMessage(s)
	changed := meta.SetStatusCondition(&lifecycle.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionOpenedByHand, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
		Reason: v1alpha1.ReasonLabelRemoved, Message: message, ObservedGeneration: lifecycle.Generation,
	})
	if changed {
		var err error
		if lifecycle, err = c.client.UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{}); err != nil {
			return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot report that the namespace was opened by hand: %w", err))
		}
	}
	skipped := toSkip(lifecycle)
	lifecycle.Spec.Skipped = append(lifecycle.Spec.Skipped, skipped...)
	lifecycle.Spec.Initializers = nil
	if _, err := c.client.Initialize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{}); err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot skip initializers %q of a namespace that was opened by hand: %w", skipped, err))
	}
	c.Events.Event(namespaceOf(s.lifecycle), corev1.EventTypeWarning, v1alpha1.ReasonOpenedByHand, "The namespace was opened by hand: "+message)
	klog.FromContext(ctx).Info("The namespace was opened by hand", "uid", s.namespace.UID, "user", s.namespace.Annotations[v1alpha1.AnnotationOpenedBy], "skipped", skipped)
	return nil
}

// applyFailurePolicy skips the overdue initializers with failurePolicy Ignore, or fails the initialization for the first
// overdue one with Fail. If one of them has finished meanwhile, the write fails with a conflict.
func (c *Controller) applyFailurePolicy(ctx context.Context, s state) error {
	lifecycle, policy := s.lifecycle.DeepCopy(), v1alpha1.Ignore
	names := overdueWith(s, v1alpha1.Fail)
	if len(names) > 0 {
		policy, names = v1alpha1.Fail, names[:1]
		lifecycle.Spec.Initializers.FailedInitializer = names[0]
		lifecycle.Spec.Initializers.Result = &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonTimeout, Code: http.StatusGatewayTimeout,
			Message: fmt.Sprintf("it was not done within %d seconds, and its failurePolicy is %s",
				*helper.Planned(s.lifecycle, names[0]).TimeoutSeconds, v1alpha1.Fail),
		}
	} else {
		names = overdueWith(s, v1alpha1.Ignore)
		lifecycle.Spec.Skipped = append(lifecycle.Spec.Skipped, names...)
		for _, name := range names {
			helper.RemovePending(lifecycle, name)
		}
	}
	// gofail: var lifecycleBeforeMissedDeadline struct{}
	if _, err := c.client.Initialize(ctx, lifecycle.Name, lifecycle, metav1.UpdateOptions{}); err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot apply failurePolicy %s to initializers %q: %w", policy, names, err))
	}
	c.Metrics.deadlines.WithLabelValues(string(policy)).Add(float64(len(names)))
	klog.FromContext(ctx).Info("Initializers missed their deadline", "initializers", names, "failurePolicy", policy)
	return nil
}

// failNamespace reports the failure, and deletes the namespace.
func (c *Controller) failNamespace(ctx context.Context, s state) error {
	if failure := describe(s); failure != nil {
		if err := c.write(ctx, s.namespace, *failure); err != nil {
			return fmt.Errorf("cannot report the failure on the namespace: %w", err)
		}
		c.Events.Event(s.namespace, corev1.EventTypeWarning, v1alpha1.ReasonFailed, failure.message)
		klog.FromContext(ctx).Info("Deleting the namespace: its initialization failed", "reason", failure.message)
	}
	// gofail: var lifecycleBeforeDeleteNamespace struct{}
	return utilapierrors.IgnoreAbsent(c.Core.CoreV1().Namespaces().Delete(ctx, s.namespace.Name, *metav1.NewPreconditionDeleteOptions(string(s.namespace.UID))))
}

// openGate removes the label and sets the conditions in one write, which fails if the
// namespace changed since it was read. The controller opens gates only here. It adds the finalizers again that were lost since the built-in
// initializer added them, for example because the etcd of Kubernetes was restored. The event of that write re-queues the name.
func (c *Controller) openGate(ctx context.Context, s state) error {
	if len(missingFinalizers(s)) > 0 {
		return utilapierrors.IgnoreAbsent(c.addFinalizers(ctx, s))
	}
	read, namespace := s.namespace, s.namespace.DeepCopy()
	delete(namespace.Labels, v1alpha1.LabelInitializing)
	report := s.objects.opened(s.lifecycle)
	report.apply(namespace, c.Clock.Now())
	// gofail: var lifecycleBeforeOpenGate struct{}
	updated, err := utilnamespaces.PatchStatus(ctx, c.Core.CoreV1(), read, namespace)
	if err != nil {
		return fmt.Errorf("cannot open the gate: %w", err)
	}
	if helper.IsClosed(updated) {
		return fmt.Errorf("kube-apiserver kept label %q in the update of the namespace: check the admission policies and webhooks for namespaces", v1alpha1.LabelInitializing)
	}
	// gofail: var lifecycleAfterOpenGate struct{}
	took := c.Clock.Since(read.CreationTimestamp.Time)
	c.Metrics.openings.Inc()
	c.Metrics.timeToReady.Observe(took.Seconds())
	c.recordOpening(read, s.objects.missing, report)
	klog.FromContext(ctx).Info("Opened the gate", "uid", read.UID, "age", took)
	return nil
}

// report updates the conditions of a namespace, unless they would report turns that are not reported yet. If the cache is behind,
// the write fails with a conflict.
func (c *Controller) report(ctx context.Context, s state) error {
	report := describe(s)
	switch {
	case report == nil:
		return nil
	case s.unlisted != nil && isBlocked(s.namespace):
		report.message += fmt.Sprintf("; initializers and participants may not be notified: %v%s", s.unlisted, remedy(s.unlisted))
	case report.reason == v1alpha1.ReasonPending && len(helper.Acting(s.lifecycle)) > 0 && len(s.timers.long) == 0:
		return nil
	}
	return c.write(ctx, s.namespace, *report)
}

func (c *Controller) write(ctx context.Context, read *corev1.Namespace, report report) error {
	_, err := c.change(ctx, read, func(namespace *corev1.Namespace) bool { return report.apply(namespace, c.Clock.Now()) })
	return err
}

// setCondition writes a condition of a namespace, and says whether it changed.
func (c *Controller) setCondition(ctx context.Context, read *corev1.Namespace, want corev1.NamespaceCondition) (bool, error) {
	want.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	return c.change(ctx, read, func(namespace *corev1.Namespace) bool {
		return utilnamespaces.SetCondition(&namespace.Status.Conditions, want)
	})
}

// change writes the conditions that a function sets in a copy of a namespace, and says whether it wrote. The function says whether it
// changed anything.
func (c *Controller) change(ctx context.Context, read *corev1.Namespace, set func(*corev1.Namespace) bool) (bool, error) {
	namespace := read.DeepCopy()
	if isRemovedByWrite(read) || !set(namespace) {
		return false, nil
	}
	// gofail: var lifecycleBeforeReport struct{}
	_, err := utilnamespaces.PatchStatus(ctx, c.Core.CoreV1(), read, namespace)
	return err == nil, utilapierrors.IgnoreAbsent(err)
}
