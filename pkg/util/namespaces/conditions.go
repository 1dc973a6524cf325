/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
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

// Phase returns the place of a namespace in its life. Status.Phase does not show that a namespace is closed.
func Phase(namespace *corev1.Namespace) v1alpha1.LifecyclePhase {
	switch {
	case namespace.DeletionTimestamp != nil:
		return v1alpha1.LifecycleTerminating
	case helper.IsClosed(namespace):
		return v1alpha1.LifecycleInitializing
	}
	return v1alpha1.LifecycleActive
}

// Conditions returns the conditions of a namespace in the usual type.
func Conditions(namespace *corev1.Namespace) (conditions []metav1.Condition) {
	for _, c := range namespace.Status.Conditions {
		conditions = append(conditions, metav1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status),
			Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime})
	}
	return conditions
}

// FromAccessible returns what an AccessibleNamespace shows of its namespace.
func FromAccessible(accessible *v1alpha1.AccessibleNamespace) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: accessible.ObjectMeta}
	for _, c := range accessible.Status.Conditions {
		namespace.Status.Conditions = append(namespace.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceConditionType(c.Type),
			Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime})
	}
	return namespace
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

// PatchStatus writes the conditions and the removals of labels by which an updated copy of a namespace differs from what was
// read, through the subresource status. What was read can be a part of the namespace: everything else stays. The error is a
// conflict if the namespace has changed since.
func PatchStatus(ctx context.Context, client typedcorev1.NamespacesGetter, read, updated *corev1.Namespace) (*corev1.Namespace, error) {
	removed := map[string]any{}
	for key := range read.Labels {
		if _, kept := updated.Labels[key]; !kept {
			removed[key] = nil
		}
	}
	order, changed := []any{}, []corev1.NamespaceCondition{}
	for _, condition := range updated.Status.Conditions {
		order = append(order, map[string]any{"type": condition.Type})
		if !slices.Contains(read.Status.Conditions, condition) {
			changed = append(changed, condition)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": read.ResourceVersion, "labels": removed},
		"status": map[string]any{"$setElementOrder/conditions": order, "conditions": changed}})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the patch of namespace %q: %w", read.Name, err)
	}
	return client.Namespaces().Patch(ctx, read.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// Frozen returns whether a namespace is frozen, and a message that says by whom and why.
func Frozen(namespace *corev1.Namespace) (message string, frozen bool) {
	if _, frozen = namespace.Labels[v1alpha1.LabelFrozen]; !frozen {
		return "", false
	}
	return fmt.Sprintf("user %q froze the namespace: %s", namespace.Annotations[v1alpha1.AnnotationFrozenBy],
		printable.Line(namespace.Annotations[v1alpha1.AnnotationFrozenReason])), true
}
