/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package freeze

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

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

func deleted(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.NewTime(now())) }

func namespace(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid"}, Status: corev1.NamespaceStatus{
		Conditions: []corev1.NamespaceCondition{{Type: v1alpha1.ConditionReady, Status: corev1.ConditionTrue}}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

const (
	audit = `user "jane" froze the namespace: audit`
	over  = `user "joe" unfroze the namespace: over; user "jane" had frozen it: audit`
)

// TestReconcile: the condition follows the label, in one write with one event, and other conditions stay.
func TestReconcile(t *testing.T) {
	for name, test := range map[string]struct {
		given *corev1.Namespace
		want  string // status/reason: message
	}{
		"never frozen":         {namespace(), ""},
		"frozen":               {namespace(frozen("audit")), "True/Frozen: " + audit},
		"several lines":        {namespace(frozen("au\ndit")), `True/Frozen: user "jane" froze the namespace: au dit`},
		"reported":             {namespace(frozen("audit"), reports(corev1.ConditionTrue, audit)), ""},
		"another reason":       {namespace(frozen("audit"), reports(corev1.ConditionTrue, "before")), "True/Frozen: " + audit},
		"frozen again":         {namespace(frozen("audit"), reports(corev1.ConditionFalse, audit)), "True/Frozen: " + audit},
		"unfrozen":             {namespace(unfrozen("over"), reports(corev1.ConditionTrue, audit)), "False/Unfrozen: " + over},
		"unfrozen, no reason":  {namespace(unfrozen(""), reports(corev1.ConditionTrue, audit)), `False/Unfrozen: user "joe" unfroze the namespace; user "jane" had frozen it: audit`},
		"unfrozen, reported":   {namespace(unfrozen("over"), reports(corev1.ConditionFalse, over)), ""},
		"unfrozen meanwhile":   {namespace(unfrozen("over")), "False/Unfrozen: " + over},
		"without policies":     {namespace(reports(corev1.ConditionTrue, audit)), "False/Unfrozen: an unknown user unfroze the namespace"},
		"forgotten":            {namespace(reports(corev1.ConditionFalse, over)), ""},
		"frozen, and deleted":  {namespace(frozen("audit"), deleted), ""},
		"unfrozen and deleted": {namespace(unfrozen("over"), reports(corev1.ConditionTrue, audit), deleted), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, core, events := newController(t, test.given)
			c.enqueue(test.given)
			if due := c.queue.Len() > 0; due != (test.want != "") {
				t.Errorf("due: %t", due)
			}
			if err := c.reconcile(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(core.Actions()) > 0 || len(events.Events) > 0 {
					t.Errorf("%v, %d events", core.Actions(), len(events.Events))
				}
				return
			}
			live, err := core.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
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
			if len(events.Events) != 1 {
				t.Fatalf("%d events", len(events.Events))
			}
			if event := <-events.Events; event != "Normal "+got.Reason+" "+got.Message {
				t.Errorf("event %q", event)
			}
		})
	}
}

// TestReconcileFails: a failed write is retried, and there is no event.
func TestReconcileFails(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "shop", nil)
	c, core, events := newController(t, namespace(frozen("audit")))
	core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict })
	if err := c.reconcile(t.Context(), "shop"); !apierrors.IsConflict(err) || len(events.Events) > 0 {
		t.Errorf("%v, %d events", err, len(events.Events))
	}
	if err := c.reconcile(t.Context(), "another"); err != nil {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}

func newController(t *testing.T, given *corev1.Namespace) (*Controller, *fake.Clientset, *record.FakeRecorder) {
	t.Helper()
	core, events := fake.NewClientset(given), record.NewFakeRecorder(1)
	factory := informers.NewSharedInformerFactory(core, 0)
	c, err := New(Dependencies{Core: core, Namespaces: factory.Core().V1().Namespaces(), Events: events, Clock: testingclock.NewFakeClock(now())})
	if err != nil {
		t.Fatal(err)
	}
	if err := factory.Core().V1().Namespaces().Informer().GetStore().Add(given); err != nil {
		t.Fatal(err)
	}
	return c, core, events
}

// TestRun: a controller that runs reports.
func TestRun(t *testing.T) {
	c, _, events := newController(t, namespace(frozen("audit")))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go c.Namespaces.Informer().RunWithContext(ctx)
	go func() { done <- c.Run(ctx) }()
	if event := <-events.Events; event != "Normal Frozen "+audit {
		t.Errorf("event %q", event)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
