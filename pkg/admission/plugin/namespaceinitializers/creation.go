/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// creation is what Validate remembers of Admit in the same request.
type creation struct {
	planned   bool
	name      string
	namespace types.UID
	plan      []nsinit.PlannedInitializer
	// degraded is the condition PlanDegraded of the plan, or nil.
	degraded *metav1.Condition
}

type creationKey struct{}

// WithCreation returns the context of a request that may create a NamespaceLifecycle. It ends within
// timing.CreateTimeout, so that no lifecycle is stored with a plan that is older. In this context, Validate
// compares the lifecycle with the plan that Admit made, and reads nothing again. Without it, Validate makes
// the plan a second time.
func WithCreation(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, creationKey{}, &creation{}), timing.CreateTimeout)
}

// remember keeps the plan of a lifecycle, and its condition PlanDegraded or nil, for the rest of the request.
func remember(ctx context.Context, lifecycle *nsinit.NamespaceLifecycle, plan []nsinit.PlannedInitializer, degraded *metav1.Condition) {
	if c, ok := ctx.Value(creationKey{}).(*creation); ok {
		// Admit shares the entries with the lifecycle, which other plugins may change.
		spec := (&nsinit.NamespaceLifecycleSpec{Plan: plan}).DeepCopy()
		*c = creation{planned: true, name: lifecycle.Name, namespace: lifecycle.Spec.NamespaceUID, plan: spec.Plan, degraded: degraded.DeepCopy()}
	}
}

// remembered returns what Admit remembered of the plan for the namespace of a lifecycle in this request, and
// whether there is one.
func remembered(ctx context.Context, lifecycle *nsinit.NamespaceLifecycle) ([]nsinit.PlannedInitializer, *metav1.Condition, bool) {
	c, ok := ctx.Value(creationKey{}).(*creation)
	if !ok || !c.planned || c.name != lifecycle.Name || c.namespace != lifecycle.Spec.NamespaceUID {
		return nil, nil, false
	}
	return c.plan, c.degraded, true
}
