/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// TestServed: an initializer that never reported is fine, and one whose reports ended is not.
func TestServed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(name string, ago time.Duration, served metav1.ConditionStatus) v1alpha1.RegisteredInitializerStatus {
		return v1alpha1.RegisteredInitializerStatus{Name: name, Reporter: "hook", ReportTime: new(metav1.NewMicroTime(now.Add(-ago))),
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: served}}}
	}
	one, late := entry("a.example.com", time.Second, metav1.ConditionTrue), entry("b.example.com", 3*time.Minute, metav1.ConditionFalse)
	const check, remedy = "Initializers", "check whether the program of the initializer runs, and read its log"
	for name, test := range map[string]struct {
		names   []string
		entries []v1alpha1.RegisteredInitializerStatus
		want    []Result
	}{
		"no configuration": {},
		"all":              {[]string{"a.example.com"}, []v1alpha1.RegisteredInitializerStatus{one}, []Result{{Check: check, State: OK, Message: "1 of 1 are served"}}},
		"never":            {[]string{"a.example.com", "c.example.com"}, []v1alpha1.RegisteredInitializerStatus{one}, []Result{{Check: check, State: OK, Message: "1 of 2 are served; no program has ever reported that it serves c.example.com; without a failurePolicy, new namespaces wait without limit for c.example.com"}}},
		"overdue": {[]string{"a.example.com", "b.example.com", "c.example.com"}, []v1alpha1.RegisteredInitializerStatus{one, late},
			[]Result{{Check: check, State: Problem, Message: `initializer "b.example.com" of configuration "c" is not served: user "hook" last reported 3m ago`, Remedy: remedy}}},
	} {
		t.Run(name, func(t *testing.T) {
			client := nsinitfake.NewClientset()
			if test.names != nil {
				c := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
				for _, name := range test.names {
					c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: name})
				}
				c.Status.Initializers = test.entries
				client = nsinitfake.NewClientset(c)
			}
			i := &inspection{now: now, Clients: &cmdutil.Clients{Clients: diagnosis.NewClients(fake.NewClientset(), client, nil, nil)}}
			i.served(t.Context())
			if diff := cmp.Diff(test.want, i.results); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
