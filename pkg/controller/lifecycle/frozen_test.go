/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// frozen is what a user with the verb freeze writes.
func frozen(reason string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) {
		n.Labels = map[string]string{v1alpha1.LabelFrozen: "true"}
		n.Annotations = map[string]string{v1alpha1.AnnotationFrozenBy: "jane", v1alpha1.AnnotationFrozenReason: reason}
	}
}

// unfrozen is what a user with the verb freeze writes later.
func unfrozen(reason string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) {
		frozen("audit")(n)
		delete(n.Labels, v1alpha1.LabelFrozen)
		n.Annotations[v1alpha1.AnnotationUnfrozenBy], n.Annotations[v1alpha1.AnnotationUnfrozenReason] = "joe", reason
	}
}

func reports(status corev1.ConditionStatus, message string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) {
		reason := map[corev1.ConditionStatus]string{corev1.ConditionTrue: v1alpha1.ReasonFrozen, corev1.ConditionFalse: v1alpha1.ReasonUnfrozen}[status]
		n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: v1alpha1.ConditionFrozen, Status: status, Reason: reason, Message: message})
	}
}

func readyNamespace(changes ...namespaceOption) *corev1.Namespace {
	n := namespace(changes...)
	n.Status.Conditions = append([]corev1.NamespaceCondition{{Type: v1alpha1.ConditionReady, Status: corev1.ConditionTrue}}, n.Status.Conditions...)
	return n
}

const (
	audit = `user "jane" froze the namespace: audit`
	over  = `user "joe" unfroze the namespace: over; user "jane" had frozen it: audit`
)

// TestFrozen: the condition follows the label, in one write with one event, and other conditions stay.
func TestFrozen(t *testing.T) {
	for name, test := range map[string]struct {
		given *corev1.Namespace
		want  string // status/reason: message
	}{
		"never frozen":         {readyNamespace(), ""},
		"frozen":               {readyNamespace(frozen("audit")), "True/Frozen: " + audit},
		"several lines":        {readyNamespace(frozen("au\ndit")), `True/Frozen: user "jane" froze the namespace: au dit`},
		"reported":             {readyNamespace(frozen("audit"), reports(corev1.ConditionTrue, audit)), ""},
		"another reason":       {readyNamespace(frozen("audit"), reports(corev1.ConditionTrue, "before")), "True/Frozen: " + audit},
		"frozen again":         {readyNamespace(frozen("audit"), reports(corev1.ConditionFalse, audit)), "True/Frozen: " + audit},
		"unfrozen":             {readyNamespace(unfrozen("over"), reports(corev1.ConditionTrue, audit)), "False/Unfrozen: " + over},
		"unfrozen, no reason":  {readyNamespace(unfrozen(""), reports(corev1.ConditionTrue, audit)), `False/Unfrozen: user "joe" unfroze the namespace; user "jane" had frozen it: audit`},
		"unfrozen, reported":   {readyNamespace(unfrozen("over"), reports(corev1.ConditionFalse, over)), ""},
		"unfrozen meanwhile":   {readyNamespace(unfrozen("over")), "False/Unfrozen: " + over},
		"without policies":     {readyNamespace(reports(corev1.ConditionTrue, audit)), "False/Unfrozen: an unknown user unfroze the namespace"},
		"forgotten":            {readyNamespace(reports(corev1.ConditionFalse, over)), ""},
		"frozen, and deleted":  {readyNamespace(frozen("audit"), deleting), ""},
		"unfrozen and deleted": {readyNamespace(unfrozen("over"), reports(corev1.ConditionTrue, audit), deleting), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.given, nil)
			if err := f.reportFrozen(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(f.writes()) > 0 || len(f.events.Events) > 0 {
					t.Errorf("%v, %d events", f.writes(), len(f.events.Events))
				}
				return
			}
			live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := live.Status.Conditions[1]
			if said := string(got.Status) + "/" + got.Reason + ": " + got.Message; said != test.want || got.LastTransitionTime.IsZero() != strings.HasPrefix(name, "another reason") {
				t.Errorf("%s at %s, want %s", said, got.LastTransitionTime, test.want)
			}
			if diff := cmp.Diff(test.given.Status.Conditions[0], live.Status.Conditions[0]); diff != "" || len(live.Status.Conditions) != 2 {
				t.Errorf("other conditions (-want +got):\n%s", diff)
			}
			if len(f.events.Events) != 1 {
				t.Fatalf("%d events", len(f.events.Events))
			}
			if event := <-f.events.Events; event != "Normal "+got.Reason+" "+got.Message {
				t.Errorf("event %q", event)
			}
		})
	}
}

// TestFrozenFails: a failed write is retried, and there is no event.
func TestFrozenFails(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "ns", nil)
	given := readyNamespace(frozen("audit"))
	given.Name = "exempt" // needs nothing else
	f := newFixture(t, given, nil)
	f.core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict })
	if err := f.handle(t.Context(), "exempt"); !apierrors.IsConflict(err) || len(f.events.Events) > 0 {
		t.Errorf("%v, %d events", err, len(f.events.Events))
	}
	if err := f.reportFrozen(t.Context(), "another"); err != nil {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}

// TestFrozenExempt: the condition does not depend on what else the namespace needs, or on the list of exemptions.
func TestFrozenExempt(t *testing.T) {
	given := readyNamespace(frozen("audit"))
	given.Name = "exempt"
	f := newFixture(t, given, nil)
	if err := f.handle(t.Context(), "exempt"); err != nil {
		t.Fatal(err)
	}
	if event := <-f.events.Events; event != "Normal Frozen "+audit {
		t.Errorf("event %q", event)
	}
}
