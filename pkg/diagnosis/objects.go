/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// missingObjects reports the objects that an initialized namespace waits for, or was opened without.
func missingObjects(o Observation) []Finding {
	state, condition := Waiting, o.objectsMissing(v1alpha1.ConditionInitializing)
	switch o.phase() {
	case Initializing:
	case Active:
		state, condition = Stuck, o.objectsMissing(v1alpha1.ConditionReady)
	default:
		return nil
	}
	if condition == nil {
		return nil
	}
	return []Finding{o.finding(ObjectsMissing, state, &condition.LastTransitionTime, condition.Message, nil)}
}

// objectsMissing returns a condition of the namespace if it is True because required objects do not exist, or
// nil.
func (o Observation) objectsMissing(kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	condition := utilnamespaces.TrueCondition(o.conditions(), kind)
	if condition == nil || condition.Reason != v1alpha1.ReasonObjectsMissing {
		return nil
	}
	return condition
}
