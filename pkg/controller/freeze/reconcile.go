/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package freeze

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// missing returns the condition that a namespace lacks, or nil. A namespace that is being deleted reports that instead: if it
// has no finalizer, any write removes it.
func missing(namespace *corev1.Namespace) *corev1.NamespaceCondition {
	message, frozen := utilnamespaces.Frozen(namespace)
	reported := slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionFrozen })
	if namespace.DeletionTimestamp != nil || !frozen && !reported {
		return nil
	}
	condition := &corev1.NamespaceCondition{Type: v1alpha1.ConditionFrozen, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonUnfrozen, Message: "the namespace was unfrozen"}
	if frozen {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, v1alpha1.ReasonFrozen, message
	}
	if conditions := slices.Clone(namespace.Status.Conditions); !utilnamespaces.SetCondition(&conditions, *condition) {
		return nil
	}
	return condition
}
