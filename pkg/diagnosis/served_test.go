/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// registered plans the initializer b of a configuration.
func registered(r *v1alpha1.NamespaceLifecycle) {
	r.Spec.Plan[1].Configuration = &v1alpha1.ConfigurationReference{Name: "20-b", UID: "uid-of-20-b"}
	r.Status.Initializers[0].Message = "3 of 7 tables"
}

// reports returns the configurations of the cluster. The initializer b last reported some time ago. A negative time stands
// for never.
func reports(ago time.Duration, served metav1.ConditionStatus) []v1alpha1.NamespaceInitializerConfiguration {
	b := v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{Name: "20-b", UID: "uid-of-20-b"},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: "other.example.com"}, {Name: "b.example.com"}},
	}
	if ago >= 0 {
		b.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{{Name: "b.example.com", Reporter: "system:serviceaccount:tables:hook",
			ReportTime: &metav1.MicroTime{Time: now().Add(-ago)}, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: served}}}}
	}
	former := v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "20-b", UID: "former"}, Initializers: b.Initializers}
	return []v1alpha1.NamespaceInitializerConfiguration{former, b}
}

// servedCases are cases of TestRules.
func servedCases() map[string]ruleCase {
	waiting := func(configurations []v1alpha1.NamespaceInitializerConfiguration, changes ...func(*v1alpha1.NamespaceLifecycle)) Observation {
		return Observation{Installation: installed(lifecycle(append(changes, registered)...), nil), Namespace: named(closed), Configurations: configurations}
	}
	pods := []string{"kubectl --namespace tables get pods"}
	const dead = `no program serves initializer "b.example.com": user "system:serviceaccount:tables:hook" last reported 3m ago`
	return map[string]ruleCase{
		"an initializer that never reported": {waiting(reports(-1, "")), []string{"Waiting InitializerPending", "Waiting InitializerNotServed"},
			[]string{`no program has ever reported that it serves initializer "b.example.com"`}, []string{"kubectl nsinit done ns b.example.com"}},
		"an initializer whose program died": {waiting(reports(3*time.Minute, metav1.ConditionFalse)), []string{"Stuck InitializerNotServed", "Waiting InitializerPending"},
			[]string{dead}, append(pods, "kubectl describe nsic 20-b")},
		"it died a while ago":         {waiting(reports(3*time.Minute, metav1.ConditionFalse), stalled), []string{"Stuck InitializerPending", "Stuck InitializerNotServed"}, []string{dead}, pods},
		"an initializer that runs":    {waiting(reports(5*time.Second, metav1.ConditionTrue)), []string{"Waiting InitializerPending"}, nil, nil},
		"another initializer is slow": {waiting(reports(5*time.Second, metav1.ConditionTrue), otherStalled), []string{"Stuck InitializerPending", "Waiting InitializerPending"}, nil, nil},
		"an initializer that is slow": {waiting(reports(5*time.Second, metav1.ConditionTrue), stalled), []string{"Stuck InitializerPending", "Stuck InitializerSlow"},
			[]string{`the program of initializer "b.example.com" runs: user "system:serviceaccount:tables:hook" reported 5s ago; its last message: 3 of 7 tables`}, pods},
		"an initializer that is not registered any more": {waiting(nil), []string{"Waiting InitializerPending"}, nil, nil},
	}
}

// otherStalled lets another initializer act at the same time, whose turn is stalled.
func otherStalled(r *v1alpha1.NamespaceLifecycle) {
	wait(r, "c.example.com", &v1alpha1.InitializerOrdering{})
	helper.Entry(r, "c.example.com").StalledTime = &metav1.MicroTime{Time: now()}
}
