/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// report is the content of the conditions of the core Namespace. Tenants cannot read
// NamespaceLifecycles.
type report struct {
	// initializing is the status of the condition Initializing. If it is empty, the condition is
	// not changed. Ready is True if initializing is False, and False otherwise.
	initializing corev1.ConditionStatus
	reason       string
	message      string
	// stalled is the message of the condition Stalled. If it is empty, the condition becomes False, unless the
	// initialization failed.
	stalled string
}

// describe returns the report on a namespace. It returns nil if nsinit does not own the conditions,
// or if the next step sets them.
func describe(s state) *report {
	switch {
	case s.namespace == nil:
		return nil
	case s.namespace.DeletionTimestamp != nil:
		return describeTerminating(s)
	case s.lifecycle == nil:
		return nil
	case s.namespace.UID != s.lifecycle.Spec.NamespaceUID:
		return ifClosed(s, v1alpha1.ReasonFormerIncarnation,
			"the former namespace of this name still has a NamespaceLifecycle, which waits for participants: "+holders(s.lifecycle))
	case s.lifecycle.DeletionTimestamp != nil:
		return ifClosed(s, v1alpha1.ReasonNoLifecycle,
			"the NamespaceLifecycle of the namespace was deleted, and is created again when these participants have released it: "+holders(s.lifecycle))
	case helper.Failure(s.lifecycle) != nil:
		return &report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFailed, message: helper.Message(s.lifecycle), stalled: helper.Message(s.lifecycle)}
	case len(helper.Pending(s.lifecycle)) > 0:
		return &report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonPending, message: helper.Message(s.lifecycle), stalled: stallMessage(s.lifecycle)}
	case s.objects.wait:
		return s.objects.waiting()
	case helper.IsClosed(s.namespace):
		return nil // openGate sets them
	case openedByHand(s) != "":
		return &report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonOpenedByHand, message: openedByHand(s)}
	case len(s.objects.missing) > 0:
		return nil // openGate has set them
	case isAdopted(s):
		return &report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonAdopted, message: "the namespace was already open when nsinit adopted it"}
	}
	return new(opened(s.lifecycle))
}

// describeTerminating returns the report on a namespace that is being deleted. Kubernetes reports
// which content is left. After that, nsinit reports the participants that have not cleaned up. The
// conditions of a namespace that was never ready or that failed do not change, unless a participant is stalled.
func describeTerminating(s state) *report {
	if isRemovedByWrite(s.namespace) {
		return nil
	}
	terminating := &report{reason: v1alpha1.ReasonTerminating, message: "the namespace is being deleted"}
	current := s.lifecycle != nil && s.namespace.UID == s.lifecycle.Spec.NamespaceUID
	if current {
		terminating.stalled = stallMessage(s.lifecycle)
	}
	if current && keepsContent(s.namespace) {
		if names := helper.ContentHolders(s.lifecycle); len(names) > 0 {
			terminating.message = "the namespace is being deleted, and its content is kept until these participants have cleaned up: " + quoted(names)
			return terminating
		}
	}
	if current && holders(s.lifecycle) != "" && isSecured(s.namespace) && !keepsContent(s.namespace) &&
		!slices.Contains(s.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		terminating.message = "the content of the namespace is deleted; waiting for participants to clean up: " + holders(s.lifecycle)
		return terminating
	}
	saysMore := slices.ContainsFunc(s.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionReady && (c.Reason != v1alpha1.ReasonFailed || c.Status == corev1.ConditionTrue)
	})
	if terminating.stalled == "" && !saysMore {
		return nil
	}
	if utilnamespaces.TrueCondition(s.namespace.Status.Conditions, v1alpha1.ConditionInitializing) != nil {
		terminating.initializing = corev1.ConditionTrue
	}
	return terminating
}

// ifClosed returns why a closed namespace does not open, and nil for an open namespace.
func ifClosed(s state, reason, message string) *report {
	if !helper.IsClosed(s.namespace) {
		return nil
	}
	return &report{initializing: corev1.ConditionTrue, reason: reason, message: message, stalled: stallMessage(s.lifecycle)}
}

// stallMessage returns which initializers or participants of a lifecycle are stalled, or "".
func stallMessage(lifecycle *v1alpha1.NamespaceLifecycle) string {
	if condition := helper.Stall(lifecycle); condition != nil {
		return condition.Message
	}
	return ""
}

// holders returns the quoted names of the participants that hold a lifecycle.
func holders(lifecycle *v1alpha1.NamespaceLifecycle) string {
	return quoted(append(helper.Participants(lifecycle), lifecycle.Finalizers...))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

// isAdopted says whether an open namespace was never closed. It checks the stamp and the condition
// Ready, because the lifecycle may have been deleted and created again.
func isAdopted(s state) bool {
	_, stamped := s.namespace.Annotations[v1alpha1.AnnotationCreatedBy]
	return !stamped && len(s.lifecycle.Spec.Plan) == 0 &&
		!slices.ContainsFunc(s.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == v1alpha1.ConditionReady && (c.Reason == v1alpha1.ReasonInitialized || c.Reason == v1alpha1.ReasonObjectsMissing)
		})
}

// openedByHand returns the message on a user who opened the namespace before its initializers were
// done, or "". The message is in a condition of the lifecycle. If the namespace was opened before the
// lifecycle was created, the plan is empty, and only the annotation of the namespace names the user.
func openedByHand(s state) string {
	if condition := meta.FindStatusCondition(s.lifecycle.Status.Conditions, v1alpha1.ConditionOpenedByHand); condition != nil {
		return condition.Message
	}
	if _, stamped := s.namespace.Annotations[v1alpha1.AnnotationOpenedBy]; stamped && len(s.lifecycle.Spec.Plan) == 0 {
		return openedByHandMessage(s)
	}
	return ""
}

// openedByHandMessage names the user who removed the label, and the initializers that were pending.
func openedByHandMessage(s state) string {
	user := "a user (see nsinit-guard/gate-opened in the audit log of kube-apiserver)"
	if name := s.namespace.Annotations[v1alpha1.AnnotationOpenedBy]; name != "" {
		user = "user " + strconv.Quote(name)
	}
	text := fmt.Sprintf("%s removed the label %s before every initializer was done", user, v1alpha1.LabelInitializing)
	if skipped := toSkip(s.lifecycle); len(skipped) > 0 {
		text += fmt.Sprintf("; skipped: %q", skipped)
	}
	return text
}

// toSkip returns the pending initializers without the built-in one, which is never skipped.
func toSkip(lifecycle *v1alpha1.NamespaceLifecycle) []string {
	return slices.DeleteFunc(helper.Pending(lifecycle), func(name string) bool { return name == v1alpha1.InitializerLifecycle })
}

// opened returns the report on a namespace whose gate is open.
func opened(lifecycle *v1alpha1.NamespaceLifecycle) report {
	return report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonInitialized, message: helper.Message(lifecycle)}
}

// apply writes a report into the conditions of a namespace, and says whether one changed. It keeps
// the conditions of others.
func (r report) apply(namespace *corev1.Namespace, now time.Time) bool {
	ready := corev1.ConditionFalse
	if r.initializing == corev1.ConditionFalse {
		ready = corev1.ConditionTrue
	}
	changed := false
	for _, want := range []corev1.NamespaceCondition{
		{Type: v1alpha1.ConditionInitializing, Status: r.initializing},
		{Type: v1alpha1.ConditionReady, Status: ready},
	} {
		if want.Status == "" {
			continue
		}
		want.Reason, want.Message, want.LastTransitionTime = r.reason, r.message, metav1.NewTime(now)
		changed = utilnamespaces.SetCondition(&namespace.Status.Conditions, want) || changed
	}
	stalled := corev1.NamespaceCondition{Type: v1alpha1.ConditionStalled, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonTurnTooLong, Message: r.stalled,
		LastTransitionTime: metav1.NewTime(now)}
	switch r.reason {
	case v1alpha1.ReasonFailed:
		stalled.Reason = r.reason
	case v1alpha1.ReasonTerminating, v1alpha1.ReasonFormerIncarnation, v1alpha1.ReasonNoLifecycle:
		stalled.Reason = v1alpha1.ReasonCleanupTooLong
	}
	if r.stalled == "" {
		i := slices.IndexFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionStalled })
		if i < 0 || namespace.Status.Conditions[i].Reason == v1alpha1.ReasonFailed && r.initializing == "" { // it failed, and is being deleted
			return changed
		}
		stalled.Status, stalled.Reason, stalled.Message = corev1.ConditionFalse, v1alpha1.ReasonTurnEnded, helper.TurnEnded
	}
	return utilnamespaces.SetCondition(&namespace.Status.Conditions, stalled) || changed
}
