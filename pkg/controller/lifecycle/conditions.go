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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// report is what a tenant reads on the core Namespace: tenants see neither records nor
// the events in other namespaces.
type report struct {
	// initializing is the status of the condition Initializing. Where it is empty, that
	// condition is left as it is. Ready is True if it is False, and False otherwise, as it
	// is while the namespace is being deleted.
	initializing corev1.ConditionStatus
	reason       string
	message      string
	// stalled says that the current turn has lasted for long. Where it is empty, the
	// condition Stalled ends if it is there.
	stalled string
}

// describe returns what the conditions of the namespace should say, or nil where what they
// say is none of nsinit's business, or follows from the next step.
func describe(s state) *report {
	switch {
	case s.namespace == nil:
		return nil
	case s.namespace.DeletionTimestamp != nil:
		return describeTerminating(s)
	case s.record == nil:
		return nil
	case s.namespace.UID != s.record.Spec.NamespaceUID:
		return ifClosed(s.namespace, v1alpha1.ReasonFormerIncarnation,
			"waiting for the record of the former namespace of this name, which these participants have not let go: "+holders(s.record))
	case s.record.DeletionTimestamp != nil:
		return ifClosed(s.namespace, v1alpha1.ReasonNoRecord,
			"the record of the namespace was deleted and is created again as soon as these participants have let it go: "+holders(s.record))
	case helper.Failure(s.record) != nil:
		return &report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonFailed, message: helper.Message(s.record)}
	case helper.Current(s.record) != "":
		said := &report{initializing: corev1.ConditionTrue, reason: v1alpha1.ReasonPending, message: helper.Message(s.record)}
		if condition := stall(s.record); condition != nil {
			said.stalled = condition.Message
		}
		return said
	case helper.IsClosed(s.namespace):
		return nil // said when the gate opens
	case openedByHand(s) != "":
		return &report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonOpenedByHand, message: openedByHand(s)}
	case isAdopted(s):
		return &report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonAdopted, message: "the namespace was open before nsinit knew it"}
	}
	said := opened(s.record)
	return &said
}

// describeTerminating is for a namespace that is being deleted. It is not ready from its
// deletion on. Kubernetes itself says what its content waits for, and nsinit who takes part
// after that. Where the conditions say that nothing was ever ready, or why the initialization
// failed, they stay.
func describeTerminating(s state) *report {
	if isRemovedByWrite(s.namespace) {
		return nil
	}
	said := &report{reason: v1alpha1.ReasonTerminating, message: "the namespace is being deleted"}
	if s.record != nil && s.namespace.UID == s.record.Spec.NamespaceUID && holders(s.record) != "" &&
		isSecured(s.namespace) &&
		!slices.Contains(s.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		said.message = "the content of the namespace is gone, these participants have not cleaned up: " + holders(s.record)
		return said
	}
	ready := slices.IndexFunc(s.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionReady })
	if ready < 0 || s.namespace.Status.Conditions[ready].Reason == v1alpha1.ReasonFailed {
		return nil
	}
	if utilnamespaces.TrueCondition(s.namespace.Status.Conditions, v1alpha1.ConditionInitializing) != nil {
		said.initializing = corev1.ConditionTrue // it stays closed, and nobody has a turn any more
	}
	return said
}

// ifClosed tells why a namespace does not open. One that is open has nothing to wait for.
func ifClosed(namespace *corev1.Namespace, reason, message string) *report {
	if !helper.IsClosed(namespace) {
		return nil
	}
	return &report{initializing: corev1.ConditionTrue, reason: reason, message: message}
}

// holders returns the participants that a record waits for, in quotes.
func holders(record *v1alpha1.NamespaceLifecycle) string {
	var names []string
	for _, finalizer := range append(helper.Participants(record), record.Finalizers...) {
		names = append(names, strconv.Quote(finalizer))
	}
	return strings.Join(names, ", ")
}

// isAdopted says whether the gate of an open namespace was never closed. The stamp and the
// condition tell that even where the record had to be created again.
func isAdopted(s state) bool {
	_, stamped := s.namespace.Annotations[v1alpha1.AnnotationCreatedBy]
	return !stamped && len(s.record.Spec.Plan) == 0 &&
		!slices.ContainsFunc(s.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonInitialized
		})
}

// openedByHand says who opened a namespace before its initializers were done, or "". The
// condition of the record says so. A namespace that was opened before it had a record got one
// without a plan; there is only the annotation.
func openedByHand(s state) string {
	if condition := meta.FindStatusCondition(s.record.Status.Conditions, v1alpha1.ConditionOpenedByHand); condition != nil {
		return condition.Message
	}
	if _, stamped := s.namespace.Annotations[v1alpha1.AnnotationOpenedBy]; stamped && len(s.record.Spec.Plan) == 0 {
		return openedByHandMessage(s)
	}
	return ""
}

// openedByHandMessage says who removed the label of a namespace, and who had not acted by then.
func openedByHandMessage(s state) string {
	who := "a user that the audit log of kube-apiserver names (nsinit-guard/gate-opened)"
	if user := s.namespace.Annotations[v1alpha1.AnnotationOpenedBy]; user != "" {
		who = "user " + strconv.Quote(user)
	}
	text := fmt.Sprintf("%s removed the label %s before every initializer was done", who, v1alpha1.LabelInitializing)
	if skipped := toSkip(s.record); len(skipped) > 0 {
		text += fmt.Sprintf("; skipped: %q", skipped)
	}
	return text
}

// toSkip returns the pending initializers but for the built-in one, which acts whoever opens
// the namespace.
func toSkip(record *v1alpha1.NamespaceLifecycle) []string {
	return slices.DeleteFunc(helper.Pending(record), func(name string) bool { return name == v1alpha1.InitializerLifecycle })
}

// opened is what the conditions say once the gate is open.
func opened(record *v1alpha1.NamespaceLifecycle) report {
	return report{initializing: corev1.ConditionFalse, reason: v1alpha1.ReasonInitialized, message: helper.Message(record)}
}

// deadlineMissed says why an initialization fails at a deadline.
func deadlineMissed(record *v1alpha1.NamespaceLifecycle) string {
	return fmt.Sprintf("it was not done within %d seconds, and its failurePolicy is %s", *helper.Planned(record, helper.Current(record)).TimeoutSeconds, v1alpha1.Fail)
}

// stalledMessage says whose turn has lasted for long, and what can be done about it.
func stalledMessage(record *v1alpha1.NamespaceLifecycle, long time.Duration) string {
	text := fmt.Sprintf("initializer %q has had its turn for longer than %s", helper.Current(record), long)
	if began := record.Spec.Initializers.TurnStartTime; began != nil {
		text += ", since " + began.UTC().Format(time.RFC3339)
	}
	return text + ": see whether it runs and what it logs; an administrator can skip it in this namespace, or take it out of its configuration"
}

// apply writes a report into the conditions of a namespace, and says whether that changed
// anything. Conditions of others are kept.
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
	if r.stalled == "" {
		if !slices.ContainsFunc(namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionStalled }) {
			return changed
		}
		stalled.Status, stalled.Reason, stalled.Message = corev1.ConditionFalse, v1alpha1.ReasonTurnEnded, helper.TurnEnded
	}
	return utilnamespaces.SetCondition(&namespace.Status.Conditions, stalled) || changed
}
