/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func TestUnserved(t *testing.T) {
	whenServed, always := v1alpha1.ActivationWhenServed, v1alpha1.ActivationAlways
	entry := func(name string, served metav1.ConditionStatus) v1alpha1.RegisteredInitializerStatus {
		e := v1alpha1.RegisteredInitializerStatus{Name: name, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: served}}}
		if served != metav1.ConditionUnknown {
			e.ReportTime, e.Reporter = new(metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))), "hook"
		}
		return e
	}
	c := &nsinit.NamespaceInitializerConfiguration{
		Initializers: []v1alpha1.RegisteredInitializer{
			{Name: "served.example.com"}, {Name: "new.example.com"}, {Name: "never.example.com", Activation: &always}, {Name: "late.example.com"},
			{Name: "when.example.com", Activation: &whenServed}, {Name: "when-served.example.com", Activation: &whenServed}, {Name: "when-late.example.com", Activation: &whenServed},
			{Name: "short.example.com", FailurePolicy: new(v1alpha1.Ignore)},
		},
		Status: v1alpha1.NamespaceInitializerConfigurationStatus{Initializers: []v1alpha1.RegisteredInitializerStatus{
			entry("served.example.com", metav1.ConditionTrue), entry("never.example.com", metav1.ConditionUnknown), entry("late.example.com", metav1.ConditionFalse),
			entry("when-served.example.com", metav1.ConditionTrue), entry("when-late.example.com", metav1.ConditionFalse),
		}},
	}
	const start = "; if its program runs, it reports within 20s, otherwise start it, or set activation: WhenServed"
	const wait = "is not served yet: new namespaces wait for it without limit, because it has no failurePolicy" + start
	const late = `is not served: user "hook" last reported at 2026-01-01T00:00:00Z, so new namespaces wait for it; check its program`
	want := []string{
		`initializers[1] "new.example.com" ` + wait,
		`initializers[2] "never.example.com" ` + wait,
		`initializers[3] "late.example.com" ` + late,
		`initializers[4] "when.example.com" has no effect yet: no program has reported that it serves it (activation: WhenServed); start the program`,
		`initializers[6] "when-late.example.com" ` + late,
		`initializers[7] "short.example.com" is not served yet: new namespaces wait for it until its deadline` + start,
	}
	if diff := cmp.Diff(want, unserved(c, c.Initializers, "namespaces")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
