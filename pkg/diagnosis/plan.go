/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// degradedPlan notes that the plan of the namespace differs from what the configurations say.
func degradedPlan(o Observation) []Finding {
	if o.lifecycle() != lifecycleCurrent {
		return nil
	}
	condition := meta.FindStatusCondition(o.Lifecycle.Object.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	if condition == nil {
		return nil
	}
	return []Finding{o.finding(PlanDegraded, Healthy, &condition.LastTransitionTime, condition.Message, nil)}
}
