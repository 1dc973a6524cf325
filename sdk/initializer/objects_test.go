/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

func waitingPod(uid types.UID, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: uid}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + name}}}}
}

func newObjectRunner(t *testing.T, dryRun bool, function ObjectFunc) *objectTurns {
	t.Helper()
	runner, err := New(Options{Name: "a.example.com", Core: fake.NewClientset(waitingPod("1", "a.example.com")), Nsinit: nsinitfake.NewClientset(), InitializeObject: function, DryRun: dryRun, Events: record.NewFakeRecorder(10)})
	if err != nil {
		t.Fatal(err)
	}
	return runner.objects
}

// TestObjectUpdates: an update of an object that has its turn does not call the function before the delay of a failed call.
func TestObjectUpdates(t *testing.T) {
	o := newObjectRunner(t, false, func(context.Context, Object) error { return nil })
	defer o.queue.ShutDown()
	pod, other := waitingPod("1", "a.example.com"), waitingPod("1", "b.example.com")
	for _, test := range []struct {
		name         string
		old, updated any
		want         int
	}{
		{"the same turn", pod, pod, 0}, {"no turn", nil, other, 0}, {"a new object", nil, pod, 1},
		{"the turn begins", other, pod, 1}, {"another object", waitingPod("0", "a.example.com"), pod, 1},
	} {
		o.changed("pods", test.old, test.updated)
		if o.queue.Len() != test.want {
			t.Errorf("%s: %d", test.name, o.queue.Len())
		}
		if o.queue.Len() > 0 {
			key, _ := o.queue.Get()
			o.queue.Done(key)
		}
	}
}

// TestObjectCalls: the function can ask whether it is called in a dry run, and what is known about an object ends with the object.
func TestObjectCalls(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		for _, deleted := range []bool{false, true} {
			pod := waitingPod("1", "a.example.com")
			var o *objectTurns
			o = newObjectRunner(t, dryRun, func(ctx context.Context, _ Object) error {
				if IsDryRun(ctx) != dryRun || IdempotencyKey(ctx) != "1/a.example.com/initialize" {
					t.Errorf("dry run %t: %t, %q", dryRun, IsDryRun(ctx), IdempotencyKey(ctx))
				}
				if deleted {
					o.deleted("pods", pod)
				}
				return Fail(errors.New("permanent"))
			})
			if err := o.informers["pods"].GetStore().Add(pod); err != nil {
				t.Fatal(err)
			}
			if err := o.take(t.Context(), "pods/n/p"); err != nil {
				t.Error(err)
			}
			if o.runner.endedAt(ended{"1", initialize}).IsZero() != deleted {
				t.Errorf("dry run %t, deleted %t: %v", dryRun, deleted, o.runner.ended)
			}
			o.queue.ShutDown()
		}
	}
}

// TestObjectEnds: the function is called again after an error, and not after the pod was written. If the pod does not exist any more, nothing is
// kept of it.
func TestObjectEnds(t *testing.T) {
	for name, test := range map[string]struct {
		err, write   error
		ended, again bool
	}{
		"done":            {nil, nil, true, false},
		"an error":        {errors.New("later"), nil, false, true},
		"a refused write": {nil, errors.New("refused"), false, true},
		"another pod":     {nil, apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("UID")), false, false},
		"no pod":          {nil, apierrors.NewNotFound(corev1.Resource("pods"), "p"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			o := newObjectRunner(t, false, func(context.Context, Object) error { calls++; return test.err })
			defer o.queue.ShutDown()
			client := o.runner.options.Core.(*fake.Clientset)
			client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return test.write != nil, nil, test.write })
			if err := o.informers["pods"].GetStore().Add(waitingPod("1", "a.example.com")); err != nil {
				t.Fatal(err)
			}
			if err := o.take(t.Context(), "pods/n/p"); (err != nil) != test.again {
				t.Error(err)
			}
			// The watch still shows the turn.
			if err := o.take(t.Context(), "pods/n/p"); (err != nil) != test.again || (calls == 1) != test.ended {
				t.Errorf("%d calls: %v", calls, err)
			}
			if o.runner.endedAt(ended{"1", initialize}).IsZero() == test.ended {
				t.Errorf("%v, want %t", o.runner.ended, test.ended)
			}
			if len(o.runner.turns) > 0 {
				t.Errorf("calls in progress: %v", o.runner.turns)
			}
			pod, err := client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil || (len(pod.Spec.SchedulingGates) == 0) != test.ended {
				t.Errorf("%v %v", pod.Spec.SchedulingGates, err)
			}
		})
	}
}

// TestObjectOver: a call ends when its object does not wait any more, or does not exist. An older object of the same name does not matter.
func TestObjectOver(t *testing.T) {
	own := waitingPod("1", "a.example.com")
	deleting := own.DeepCopy()
	deleting.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		event func(o *objectTurns)
		over  bool
	}{
		"an update":       {func(o *objectTurns) { o.changed("pods", own, own) }, false},
		"a deletion":      {func(o *objectTurns) { o.deleted("pods", own) }, true},
		"a former pod":    {func(o *objectTurns) { o.deleted("pods", waitingPod("0", "a.example.com")) }, false},
		"another pod":     {func(o *objectTurns) { o.changed("pods", own, waitingPod("2", "a.example.com")) }, true},
		"being deleted":   {func(o *objectTurns) { o.changed("pods", own, deleting) }, true},
		"the turn ends":   {func(o *objectTurns) { o.changed("pods", own, waitingPod("1", "b.example.com")) }, true},
		"another's turns": {func(o *objectTurns) { o.changed("jobs", own, waitingPod("1", "b.example.com")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var o *objectTurns
			o = newObjectRunner(t, false, func(ctx context.Context, _ Object) error {
				if test.event(o); (ctx.Err() != nil) != test.over {
					t.Errorf("over: %v", ctx.Err())
				}
				return ctx.Err()
			})
			defer o.queue.ShutDown()
			if err := o.informers["pods"].GetStore().Add(own); err != nil {
				t.Fatal(err)
			}
			if err := o.take(t.Context(), "pods/n/p"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestObjectsInTurn: many pods of one namespace do not delay that of another one.
func TestObjectsInTurn(t *testing.T) {
	o := newObjectRunner(t, false, func(context.Context, Object) error { return nil })
	defer o.queue.ShutDown()
	for _, key := range []string{"pods/a/1", "pods/a/2", "jobs/a/3", "pods/b/1"} {
		o.queue.Add(key)
	}
	for _, want := range []string{"pods/a/1", "pods/b/1", "pods/a/2"} {
		if key, _ := o.queue.Get(); key != want {
			t.Errorf("got %s, want %s", key, want)
		}
	}
}
