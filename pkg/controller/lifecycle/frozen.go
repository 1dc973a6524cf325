/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// reportFrozen reports in the condition Frozen of a namespace, and in an event, that an administrator froze or unfroze it. The policies in
// artifacts/policies/freeze.yaml refuse the writes, whether this controller runs or not. If the cache is behind, the write fails with a
// conflict.
func (c *Controller) reportFrozen(ctx context.Context, name string) error {
	read, err := c.namespaces.Get(name)
	if err != nil {
		return nil //nolint:nilerr // the namespace does not exist
	}
	condition := frozenCondition(read)
	if condition == nil {
		return nil
	}
	if written, err := c.setCondition(ctx, read, *condition); err != nil {
		return fmt.Errorf("cannot write the condition %s: %w", v1alpha1.ConditionFrozen, err)
	} else if !written {
		return nil
	}
	klog.FromContext(ctx).Info("Reported", "namespace", name, "uid", read.UID, "reason", condition.Reason, "message", condition.Message)
	c.Events.Event(read, corev1.EventTypeNormal, condition.Reason, condition.Message)
	return nil
}

// frozenCondition returns the condition Frozen of a namespace, or nil if it needs none. A namespace that is being deleted reports that
// instead: if it has no finalizer, any write removes it.
func frozenCondition(namespace *corev1.Namespace) *corev1.NamespaceCondition {
	condition := &corev1.NamespaceCondition{Type: v1alpha1.ConditionFrozen, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonUnfrozen}
	message, frozen := utilnamespaces.Frozen(namespace)
	_, unfrozen := namespace.Annotations[v1alpha1.AnnotationUnfrozenBy]
	switch {
	case namespace.DeletionTimestamp != nil:
		return nil
	case frozen:
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, v1alpha1.ReasonFrozen, message
	case unfrozen:
		condition.Message = unfrozenMessage(namespace.Annotations)
	case utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionFrozen) != nil: // while the policies were missing
		condition.Message = "an unknown user unfroze the namespace"
	default:
		return nil
	}
	return condition
}

// unfrozenMessage says who unfroze a namespace and why, and who had frozen it and why.
func unfrozenMessage(annotations map[string]string) string {
	message := fmt.Sprintf("user %q unfroze the namespace", annotations[v1alpha1.AnnotationUnfrozenBy])
	if reason := annotations[v1alpha1.AnnotationUnfrozenReason]; reason != "" {
		message += ": " + printable.Line(reason)
	}
	return fmt.Sprintf("%s; user %q had frozen it: %s", message, annotations[v1alpha1.AnnotationFrozenBy], printable.Line(annotations[v1alpha1.AnnotationFrozenReason]))
}
