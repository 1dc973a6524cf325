/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package freeze

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// missing returns the condition that a namespace lacks, or nil. A namespace that is being deleted reports that instead: if it
// has no finalizer, any write removes it.
func missing(namespace *corev1.Namespace) *corev1.NamespaceCondition {
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
	if conditions := slices.Clone(namespace.Status.Conditions); !utilnamespaces.SetCondition(&conditions, *condition) {
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
