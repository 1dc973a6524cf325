/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package accessiblenamespace

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// text returns a version as a resourceVersion.
func text(version uint64) string { return strconv.FormatUint(version, 10) }

// object returns what the user of the view gets.
func (v *view) object(found state) *nsinit.AccessibleNamespace {
	namespace := found.namespace
	object := &nsinit.AccessibleNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, UID: namespace.UID, ResourceVersion: text(found.version), Labels: namespace.Labels,
			CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp},
		Status: v1alpha1.AccessibleNamespaceStatus{Phase: utilnamespaces.Phase(namespace), Conditions: utilnamespaces.Conditions(namespace)},
	}
	if creator := helper.Creator(namespace); creator == v.user.GetName() {
		object.Status.Creator = creator
	}
	if meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady) == nil {
		object.Status.Conditions = append(object.Status.Conditions, ready(namespace))
	}
	return object
}

// ready returns the condition Ready of a namespace in which nsinit has not set it.
func ready(namespace *corev1.Namespace) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(utilnamespaces.Phase(namespace)), LastTransitionTime: namespace.CreationTimestamp}
	switch utilnamespaces.Phase(namespace) {
	case v1alpha1.LifecycleTerminating:
		c.Message, c.LastTransitionTime = "the namespace is being deleted", *namespace.DeletionTimestamp
	case v1alpha1.LifecycleInitializing:
		c.Message = "the namespace is being initialized"
	default:
		c.Status, c.Message = metav1.ConditionTrue, "nsinit does not initialize the namespace"
	}
	return c
}

func newTable() *generic.Table[*nsinit.AccessibleNamespace] {
	return &generic.Table[*nsinit.AccessibleNamespace]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Phase", Type: "string", Description: "Initializing, Active or Terminating, and Frozen while no tenant can write."},
			{Name: "Since", Type: "string", Description: "How long ago the condition Ready changed."},
			{Name: "Age", Type: "string", Description: "How long ago the namespace was created."},
			{Name: "Message", Type: "string", Priority: 1, Description: "What the namespace waits for."},
		},
		Cells: func(n *nsinit.AccessibleNamespace, age string) []any {
			shown, since, message := string(n.Status.Phase), "<unknown>", ""
			if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady); c != nil {
				since = table.ConvertToHumanReadableDateType(c.LastTransitionTime)
				if c.Status != metav1.ConditionTrue {
					message = printable.Line(c.Message)
				}
			}
			if frozen := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionFrozen); frozen != nil && frozen.Status == metav1.ConditionTrue {
				shown, message = shown+","+v1alpha1.ConditionFrozen, cmp.Or(message, printable.Line(frozen.Message))
			}
			return []any{n.Name, shown, since, age, cmp.Or(message, "<none>")}
		},
	}
}
