/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// reportAfter is the number of successive failures after which the namespace reports them. The
// delays between them add up to five seconds.
const reportAfter = 8

// reportFailing sets the condition Failing of a namespace whose next step, or the reading of its state, fails repeatedly, and
// clears it after a success. It writes once for each cause, not for each retry. It does not report
// that a lifecycle cannot be created: a closed namespace reports this as Initializing, and an open
// namespace does not wait for it.
func (c *Controller) reportFailing(ctx context.Context, name string, step action, err error) {
	s := c.cached(name)
	if s.namespace == nil || ctx.Err() != nil {
		return
	}
	want := corev1.NamespaceCondition{Type: v1alpha1.ConditionFailing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonStepTaken,
		Message: "the last step succeeded"}
	switch {
	case err == nil && utilnamespaces.TrueCondition(s.namespace.Status.Conditions, v1alpha1.ConditionFailing) == nil:
		return
	case err == nil:
	case apierrors.IsConflict(err) || c.queue.NumRequeues(name) < reportAfter || s.lifecycle == nil && s.namespace.DeletionTimestamp == nil:
		return
	default:
		want.Status, want.Reason = corev1.ConditionTrue, v1alpha1.ReasonReadFailed
		want.Message = fmt.Sprintf("nsinit-controller-manager cannot read the state of the namespace, and retries: %v", err)
		if step != "" {
			want.Reason = string(step) + "Failed"
			want.Message = fmt.Sprintf("nsinit-controller-manager cannot take the next step for the namespace (%s), and retries: %v", step, err)
		}
	}
	if _, err := c.setCondition(ctx, s.namespace, want); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot report on the namespace", "err", err)
	}
}
