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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

func waitingPod(uid types.UID, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: uid}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + name}}}}
}

func newObjectRunner(t *testing.T, dryRun bool, function ObjectFunc) *objectTurns {
	t.Helper()
	runner, err := New(Options{Name: "a.example.com", Core: fake.NewClientset(), Nsinit: nsinitfake.NewClientset(), InitializeObject: function, DryRun: dryRun, Events: record.NewFakeRecorder(10)})
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
			if o.runner.hasEnded(ended{"1", initialize}) == deleted {
				t.Errorf("dry run %t, deleted %t: %v", dryRun, deleted, o.runner.ended)
			}
			o.queue.ShutDown()
		}
	}
}
