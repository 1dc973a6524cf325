/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// stalled returns the initializers whose turn has lasted too long, and which the status does not show as stalled.
func stalled(s state) []string {
	return slices.DeleteFunc(slices.Clone(s.timers.stalled), func(name string) bool { return helper.IsStalled(s.lifecycle, name) })
}

// reportStall marks initializers as stalled. The server derives the condition Stalled, which an event repeats.
func (c *Controller) reportStall(ctx context.Context, s state) error {
	lifecycle, names := s.lifecycle.DeepCopy(), stalled(s)
	for _, name := range names {
		if entry := helper.Entry(lifecycle, name); entry != nil {
			entry.StalledTime = new(metav1.NewMicroTime(c.Clock.Now()))
		}
	}
	// gofail: var lifecycleBeforeReportStall struct{}
	updated, err := c.client.UpdateStatus(ctx, lifecycle, metav1.UpdateOptions{})
	if err != nil {
		return utilapierrors.IgnoreAbsent(fmt.Errorf("cannot report that initializers %q are stalled: %w", names, err))
	}
	if condition := helper.Stall(updated); condition != nil {
		c.Events.Event(namespaceOf(s.lifecycle), corev1.EventTypeWarning, eventStalled, condition.Message)
	}
	return nil
}
