/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestFailing: a namespace reports a step that fails again and again, once for each cause, and that it
// no longer does.
func TestFailing(t *testing.T) {
	f := newFixture(t, namespace(deleting, emptied), aLifecycle(held("p.example.com")))
	var refusal error
	f.nsinit.PrependReactor("delete", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
	reports := func() int {
		return len(slices.DeleteFunc(f.writes(), func(write string) bool { return write != "patch namespaces/status" }))
	}
	try := func(times int) *corev1.NamespaceCondition {
		t.Helper()
		for range times {
			if err := f.handle(t.Context(), "ns"); err != nil {
				f.queue.AddRateLimited("ns")
			} else {
				f.queue.Forget("ns")
			}
		}
		live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.cache(live, nil)
		i := slices.IndexFunc(live.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v1alpha1.ConditionFailing })
		if i < 0 {
			return nil
		}
		return &live.Status.Conditions[i]
	}
	if condition := try(1); condition != nil {
		t.Errorf("nothing has failed: %v", condition)
	}
	refusal = errors.New("space exceeded")
	if condition := try(reportAfter); condition != nil {
		t.Errorf("it may be over soon: %v", condition)
	}
	condition := try(1)
	if condition == nil || condition.Status != corev1.ConditionTrue || condition.Reason != "DeleteLifecycleFailed" || !strings.Contains(condition.Message, "space exceeded") {
		t.Fatalf("the condition is %v", condition)
	}
	before := reports()
	try(5)
	if after := reports(); after != before {
		t.Errorf("%d retries led to %d reports", 5, after-before)
	}
	refusal = errors.New("other")
	if condition := try(1); condition == nil || !strings.Contains(condition.Message, "other") {
		t.Errorf("another cause: %v", condition)
	}
	f.listing.problem, refusal = unreadableError(), errors.New("while lists fail")
	if condition := try(1); condition == nil || condition.Reason != "DeleteLifecycleFailed" || !strings.Contains(condition.Message, "while lists fail") {
		t.Errorf("without a list: %v", condition)
	}
	f.listing.problem = nil
	refusal = nil
	if condition := try(1); condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != v1alpha1.ReasonStepTaken {
		t.Errorf("after it succeeded: %v", condition)
	}
	before = reports()
	try(3)
	if after := reports(); after != before {
		t.Errorf("nothing fails, and there are %d reports", after-before)
	}
}

// TestFailingToCreate: a namespace that has no lifecycle waits for nothing, or says so in Initializing.
func TestFailingToCreate(t *testing.T) {
	f := newFixture(t, namespace(), nil)
	f.nsinit.PrependReactor("create", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("full") })
	for range reportAfter + 2 {
		if err := f.handle(t.Context(), "ns"); err == nil {
			t.Fatal("it did not fail")
		}
		f.queue.AddRateLimited("ns")
	}
	for _, write := range f.writes() {
		if write != "create namespacelifecycles" {
			t.Errorf("an open namespace got %s", write)
		}
	}
}
