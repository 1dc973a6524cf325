/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// stalled returns the initializers that the condition Stalled has to name: those whose turn has lasted
// too long, and those that it names already, until their turn ends. Another process, whose clock was ahead,
// may have reported these.
func stalled(s state) []string {
	reported := helper.Stalled(s.lifecycle)
	return slices.DeleteFunc(helper.Acting(s.lifecycle), func(name string) bool {
		return !slices.Contains(s.timers.stalled, name) && !slices.Contains(reported, name)
	})
}

// reportStall writes the condition Stalled, and records an event for each initializer that it did not
// name before.
func (c *Controller) reportStall(ctx context.Context, s state) error {
	lifecycle, names := s.lifecycle.DeepCopy(), stalled(s)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
		Reason: v1alpha1.ReasonTurnTooLong, Message: stalledMessage(s.lifecycle, names, c.StalledAfter), ObservedGeneration: lifecycle.Generation,
	}
	if len(names) == 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonTurnEnded, helper.TurnEnded
	}
	meta.SetStatusCondition(&lifecycle.Status.Conditions, condition)
	// gofail: var lifecycleBeforeReportStall struct{}
	if _, err := c.client.UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{}); err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot report that initializers %q are stalled: %w", names, err))
	}
	reported := helper.Stalled(s.lifecycle)
	for _, name := range names {
		if !slices.Contains(reported, name) {
			c.Events.Event(namespaceOf(s.lifecycle), corev1.EventTypeWarning, eventStalled, stalledMessage(s.lifecycle, []string{name}, c.StalledAfter))
		}
	}
	return nil
}

// stalledMessage names the stalled initializers, and how to continue.
func stalledMessage(lifecycle *v1alpha1.NamespaceLifecycle, names []string, long time.Duration) string {
	text, whose := "", "it"
	for i, name := range names {
		if i == 0 {
			text = fmt.Sprintf("the turn of initializer %q has lasted longer than %s", name, long)
		} else {
			text, whose = text+fmt.Sprintf("; and that of initializer %q", name), "each"
		}
		if began := helper.TurnStart(lifecycle, name); began != nil {
			text += ", since " + began.UTC().Format(time.RFC3339)
		}
	}
	return fmt.Sprintf("%s: check that %s runs, and read its log; an administrator can skip it in this namespace, or remove it from its configuration", text, whose)
}
