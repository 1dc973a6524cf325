/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// TestOver: the end of a turn in a former namespace, which the watch shows late, does not end the turn in the next one.
func TestOver(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	lifecycle := func(namespace types.UID) *v1alpha1.NamespaceLifecycle {
		return &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespace}}
	}
	r := &Runner{queue: queue, ended: map[ended]time.Time{}, turns: map[string]*call{"ns": {lifecycle: lifecycle("now"), operation: initialize, end: end}}}
	r.over(initialize, lifecycle("former"))
	r.over(finalize, lifecycle("now"))
	if ctx.Err() != nil {
		t.Error("the turn was ended by another one")
	}
	r.over(initialize, lifecycle("now"))
	if ctx.Err() == nil {
		t.Error("the turn was not ended")
	}
}

// TestRestored: a turn that the watch shows long after it ended is taken again only if it goes on, because an older snapshot was restored.
func TestRestored(t *testing.T) {
	const name = "a.example.com"
	waiting := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "lifecycle"}, Spec: v1alpha1.NamespaceLifecycleSpec{
		NamespaceUID: "namespace", Plan: []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}}},
		Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: name}}}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "namespace", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
	for restored, want := range map[bool]int{false: 1, true: 2} {
		calls, clock, nsinit := 0, testingclock.NewFakeClock(time.Now()), nsinitfake.NewClientset(waiting)
		r, err := New(Options{Name: name, Core: fake.NewClientset(namespace), Nsinit: nsinit, Clock: clock, Events: record.NewFakeRecorder(10),
			Initialize: func(context.Context, *corev1.Namespace) error { calls++; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer r.queue.ShutDown()
		if err := r.watches[initialize].GetStore().Add(waiting); err != nil {
			t.Fatal(err)
		}
		for _, later := range []time.Duration{0, shownPeriod / 2, shownPeriod / 2} {
			clock.Step(later)
			if err := r.take(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			if later == 0 && restored {
				if err := nsinit.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles"), waiting, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if calls != want {
			t.Errorf("restored: %t, calls: %d", restored, calls)
		}
	}
}

// TestDeadline: a deadline by the clock of nsinit-apiserver does not end a call. The clock of this machine can be ahead, and without
// nsinit-controller-manager, which ends the turn, deadlines have no effect.
func TestDeadline(t *testing.T) {
	const name = "a.example.com"
	past := metav1.NowMicro()
	lifecycle := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "lifecycle"},
		Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "namespace", Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: name}}},
			Plan: []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}}}},
		Status: v1alpha1.NamespaceLifecycleStatus{Initializers: []v1alpha1.InitializerStatus{{Name: name, State: v1alpha1.InitializerRunning, StartTime: &past, Deadline: &past}}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "namespace", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}
	called := false
	r, err := New(Options{Name: name, Core: fake.NewClientset(namespace), Nsinit: nsinitfake.NewClientset(lifecycle), Events: record.NewFakeRecorder(10),
		Initialize: func(ctx context.Context, _ *corev1.Namespace) error { called = true; return ctx.Err() }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.queue.ShutDown()
	if err := r.watches[initialize].GetStore().Add(lifecycle); err != nil {
		t.Fatal(err)
	}
	if err := r.take(t.Context(), "ns"); err != nil || !called {
		t.Errorf("called: %t, %v", called, err)
	}
}
