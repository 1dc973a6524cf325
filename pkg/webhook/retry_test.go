/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func closedFor(age time.Duration, now time.Time, conditions ...corev1.NamespaceCondition) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Status:     corev1.NamespaceStatus{Conditions: conditions},
	}
}

func TestAnswer(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonPending, Message: `waiting for initializer "x"`}
	stalled := corev1.NamespaceCondition{Type: v1alpha1.ConditionStalled, Status: corev1.ConditionTrue, Message: "long"}
	recovered := corev1.NamespaceCondition{Type: v1alpha1.ConditionStalled, Status: corev1.ConditionFalse, Message: "was long"}
	failed := corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonFailed, Message: "no such cost centre"}
	terminating := closedFor(time.Second, now, pending)
	terminating.DeletionTimestamp = &metav1.Time{Time: now}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		retry     int32
		says      string
	}{
		"not known yet":          {nil, 1, "has not recorded yet"},
		"created in the future":  {closedFor(-time.Hour, now), 1, "has not recorded yet"},
		"just created":           {closedFor(0, now, pending), 1, `waiting for initializer "x"`},
		"half a second too long": {closedFor(2500*time.Millisecond, now, pending), 2, `waiting for initializer "x"`},
		"ten seconds":            {closedFor(10*time.Second, now, pending), 5, `waiting for initializer "x"`},
		"days, without a reason": {closedFor(48*time.Hour, now, pending), 30, `waiting for initializer "x"`},
		"stalled, and young":     {closedFor(20*time.Second, now, pending, stalled), 10, `waiting for initializer "x"`},
		"stalled":                {closedFor(3*time.Minute, now, pending, stalled), 0, "kubectl nsinit wait shop"},
		"no longer stalled":      {closedFor(20*time.Second, now, pending, recovered), 10, `waiting for initializer "x"`},
		"failed":                 {closedFor(time.Second, now, failed), 0, `namespace "shop" cannot be written to: no such cost centre; create it again after the cause is fixed`},
		"failed, and old":        {closedFor(3*time.Minute, now, failed, stalled), 0, `namespace "shop" cannot be written to: no such cost centre; create it again after the cause is fixed`},
		"being deleted":          {terminating, 0, `namespace "shop" is being deleted, and cannot be written to`},
	} {
		t.Run(name, func(t *testing.T) {
			got := retry(&admissionv1.AdmissionRequest{UID: "u", Namespace: "shop"}, test.namespace, now)
			if got.Allowed || got.UID != "u" || got.Result.Code != http.StatusTooManyRequests || got.Result.Reason != metav1.StatusReasonTooManyRequests {
				t.Errorf("answered %+v", got)
			}
			if got.Result.Details.RetryAfterSeconds != test.retry || !strings.Contains(got.Result.Message, test.says) || !strings.Contains(got.Result.Message, `"shop"`) {
				t.Errorf("retry after %d: %s", got.Result.Details.RetryAfterSeconds, got.Result.Message)
			}
		})
	}
}

// TestNamesake: kube-apiserver asks about resources named namespaces in open namespaces, too.
func TestNamesake(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open, closed, empty := closedFor(time.Second, now), closedFor(time.Second, now), closedFor(time.Second, now)
	closed.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
	empty.Labels = map[string]string{v1alpha1.LabelInitializing: ""}
	for name, test := range map[string]struct {
		resource  string
		namespace *corev1.Namespace
		allowed   bool
	}{
		"in an open namespace":                 {"namespaces", open, true},
		"in a closed namespace":                {"namespaces", closed, false},
		"in a namespace with an empty label":   {"namespaces", empty, false},
		"in a namespace that is not known yet": {"namespaces", nil, false},
		"of another name":                      {"configmaps", open, false},
	} {
		t.Run(name, func(t *testing.T) {
			request := &admissionv1.AdmissionRequest{UID: "u", Namespace: "shop", Resource: metav1.GroupVersionResource{Group: "example.com", Resource: test.resource}}
			namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if test.namespace != nil {
				if err := namespaces.Add(test.namespace); err != nil {
					t.Fatal(err)
				}
			}
			registry := metrics.NewKubeRegistry()
			answer, err := NewEarlyWrites(corelisters.NewNamespaceLister(namespaces), clocktesting.NewFakePassiveClock(now), registry.Register)
			if err != nil {
				t.Fatal(err)
			}
			got := answer(t.Context(), request)
			if got.Allowed != test.allowed || got.UID != "u" || (got.Result == nil) != test.allowed {
				t.Errorf("answered %+v", got)
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var counted float64
			for _, metric := range families[0].GetMetric() {
				counted += metric.GetCounter().GetValue()
			}
			if (counted == 0) != test.allowed {
				t.Errorf("counted %v early writes", counted)
			}
		})
	}
}

// TestPatience: clients, which try ten times again, wait long enough for initializations of up
// to a minute, and not much longer than they have to.
func TestPatience(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, takes := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 20 * time.Second, time.Minute} {
		now, tries := created, 0
		for ; now.Sub(created) < takes; tries++ {
			now = now.Add(retryAfter(closedFor(now.Sub(created), now), now))
		}
		if waited := now.Sub(created); tries > 10 || waited > max(time.Second, takes*3/2+time.Second) {
			t.Errorf("an initialization that takes %s is waited for in %d tries, until %s", takes, tries, waited)
		}
	}
}
