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
	_, frozen := namespace.Labels[v1alpha1.LabelFrozen]
	reported := slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionFrozen })
	if namespace.DeletionTimestamp != nil || !frozen && !reported {
		return nil
	}
	condition := &corev1.NamespaceCondition{Type: v1alpha1.ConditionFrozen, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonUnfrozen, Message: "the namespace was unfrozen"}
	if frozen {
		condition.Status, condition.Reason = corev1.ConditionTrue, v1alpha1.ReasonFrozen
		condition.Message = fmt.Sprintf("user %q froze the namespace: %s", namespace.Annotations[v1alpha1.AnnotationFrozenBy],
			printable.Line(namespace.Annotations[v1alpha1.AnnotationFrozenReason]))
	}
	if conditions := slices.Clone(namespace.Status.Conditions); !utilnamespaces.SetCondition(&conditions, *condition) {
		return nil
	}
	return condition
}
