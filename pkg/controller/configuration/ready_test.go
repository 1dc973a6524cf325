/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestSetReady: a configuration is ready if it has its effect, and is stalled if only a user can change that.
func TestSetReady(t *testing.T) {
	now := time.Unix(1767225600, 0)
	accepted := metav1.Condition{Type: v1alpha1.ConditionNamesAccepted, Status: metav1.ConditionTrue, Reason: "NoConflicts", ObservedGeneration: 2}
	taken := metav1.Condition{Type: v1alpha1.ConditionNamesAccepted, Status: metav1.ConditionFalse, Reason: reasonNameTaken, Message: "taken", ObservedGeneration: 2}
	unknown := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotObserved, ObservedGeneration: 1}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reasonNameTaken, ObservedGeneration: 1}
	serving := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: status, Reason: reason, Message: "check its program"}}
	}
	for name, test := range map[string]struct {
		before  []metav1.Condition
		served  []metav1.Condition
		ready   string
		stalled string
		// whenServed is whether the first initializer has this activation.
		whenServed bool
	}{
		"not observed":        {[]metav1.Condition{unknown}, serving(metav1.ConditionUnknown, v1alpha1.ReasonNeverReported), "Unknown/NotObserved/1 ", "", false},
		"in force":            {[]metav1.Condition{unknown, accepted}, serving(metav1.ConditionTrue, v1alpha1.ReasonReported), "True/InForce/2 every initializer acts on new namespaces that it selects", "", false},
		"a person serves it":  {[]metav1.Condition{unknown, accepted}, serving(metav1.ConditionUnknown, v1alpha1.ReasonNeverReported), "True/InForce/2 every initializer acts on new namespaces that it selects", "", false},
		"a program has to":    {[]metav1.Condition{accepted}, serving(metav1.ConditionUnknown, v1alpha1.ReasonNeverReported), `False/NeverReported/2 initializer "a.example.com": check its program`, "", true},
		"no report":           {[]metav1.Condition{accepted}, nil, "True/InForce/2 every initializer acts on new namespaces that it selects", "", false},
		"the program stopped": {[]metav1.Condition{accepted}, serving(metav1.ConditionFalse, v1alpha1.ReasonReportOverdue), `False/ReportOverdue/2 initializer "a.example.com": check its program`, "", false},
		"the name is taken":   {[]metav1.Condition{taken}, serving(metav1.ConditionFalse, v1alpha1.ReasonReportOverdue), "False/NameTaken/2 taken", "True/NameTaken/2 taken", false},
		"not taken any more":  {[]metav1.Condition{accepted, stalled}, nil, "True/InForce/2 every initializer acts on new namespaces that it selects", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.NamespaceInitializerConfiguration{}
			c.Generation = 3
			c.Initializers = []v1alpha1.RegisteredInitializer{{Name: "a.example.com"}, {Name: "b.example.com"}}
			if test.whenServed {
				c.Initializers[0].Activation = new(v1alpha1.ActivationWhenServed)
			}
			c.Status.Conditions = test.before
			c.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{{Name: "a.example.com", Conditions: test.served}, {Name: "b.example.com"}}
			setReady(c, now)
			for kind, want := range map[string]string{v1alpha1.ConditionReady: test.ready, v1alpha1.ConditionStalled: test.stalled} {
				got := ""
				if condition := meta.FindStatusCondition(c.Status.Conditions, kind); condition != nil {
					got = fmt.Sprintf("%s/%s/%d %s", condition.Status, condition.Reason, condition.ObservedGeneration, condition.Message)
				}
				if got != want {
					t.Errorf("%s: %q, want %q", kind, got, want)
				}
			}
			if observed := meta.FindStatusCondition(test.before, v1alpha1.ConditionNamesAccepted) != nil; (c.Status.ObservedGeneration == 2) != observed {
				t.Errorf("observed generation %d", c.Status.ObservedGeneration)
			}
		})
	}
}
