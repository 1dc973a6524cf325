/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaces

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/util/printable"
)

// SetCondition sets a condition, and returns whether more than the time changed. If the status stays
// the same, so does the transition time. The message may contain an error of another program.
func SetCondition(conditions *[]corev1.NamespaceCondition, want corev1.NamespaceCondition) bool {
	want.Message = printable.Lines(want.Message)
	i := slices.IndexFunc(*conditions, func(c corev1.NamespaceCondition) bool { return c.Type == want.Type })
	if i < 0 {
		*conditions = append(*conditions, want)
		return true
	}
	old := (*conditions)[i]
	if old.Status == want.Status && old.Reason == want.Reason && old.Message == want.Message {
		return false
	}
	if old.Status == want.Status {
		want.LastTransitionTime = old.LastTransitionTime
	}
	(*conditions)[i] = want
	return true
}

// TrueCondition returns the condition of a type if it is True, or nil.
func TrueCondition(conditions []corev1.NamespaceCondition, kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	for i := range conditions {
		if conditions[i].Type == kind && conditions[i].Status == corev1.ConditionTrue {
			return &conditions[i]
		}
	}
	return nil
}
