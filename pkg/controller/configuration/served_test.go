/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// reported returns a configuration whose initializers last reported some time ago. A negative time
// stands for never.
func reported(ago ...time.Duration) *v1alpha1.NamespaceInitializerConfiguration {
	c := configuration(nil)
	for i, ago := range ago {
		name := string(rune('a'+i)) + ".example.com"
		c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: name})
		if ago >= 0 {
			c.Status.Initializers = append(c.Status.Initializers, v1alpha1.RegisteredInitializerStatus{
				Name: name, Reporter: "hook", ReportTime: new(metav1.NewMicroTime(start().Add(-ago))),
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReported, LastTransitionTime: metav1.NewTime(start().Add(-ago))}},
			})
		}
	}
	return c
}

func TestSetServed(t *testing.T) {
	const never = time.Duration(-1)
	for name, test := range map[string]struct {
		configuration *v1alpha1.NamespaceInitializerConfiguration
		want          []string
		next          time.Duration
	}{
		"none":           {reported(), nil, 0},
		"never":          {reported(never), []string{"Unknown NeverReported: no program has reported that it serves the initializer"}, 0},
		"now":            {reported(0), []string{"True Reported: "}, timing.ReportOverdue},
		"almost overdue": {reported(timing.ReportOverdue - time.Microsecond), []string{"True Reported: "}, time.Microsecond},
		"overdue":        {reported(timing.ReportOverdue), []string{`False ReportOverdue: user "hook" last reported at 2025-12-31T23:59:00Z: check its program`}, 0},
		"several":        {reported(10*time.Second, never, time.Hour, 30*time.Second), []string{"True Reported: ", `False ReportOverdue: user "hook" last reported at 2025-12-31T23:00:00Z: check its program`, "True Reported: ", "Unknown NeverReported: no program has reported that it serves the initializer"}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			next := setServed(test.configuration, start())
			var got []string
			for _, entry := range test.configuration.Status.Initializers {
				for _, c := range entry.Conditions {
					got = append(got, string(c.Status)+" "+c.Reason+": "+c.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || next != test.next {
				t.Errorf("the next one is overdue in %s, want %s; conditions (-want +got):\n%s", next, test.next, diff)
			}
			settled := test.configuration.DeepCopy()
			setServed(settled, start())
			if diff := cmp.Diff(test.configuration, settled); diff != "" {
				t.Errorf("a second call changes (-first +second):\n%s", diff)
			}
		})
	}
}

// TestReportsCostNothing: reports cause no write. When they end, one write follows, as soon
// as the last one is too old.
func TestReportsCostNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stored := reported(0)
	client := nsinitfake.NewClientset(stored)
	clock := testingclock.NewFakeClock(start())
	factory := nsinitinformers.NewSharedInformerFactory(client, 0)
	configurations := factory.Nsinit().V1alpha1().NamespaceInitializerConfigurations()
	c, err := New(Dependencies{Nsinit: client, Configurations: configurations, Lifecycles: factory.Nsinit().V1alpha1().NamespaceLifecycles(), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	entry := func() *v1alpha1.RegisteredInitializerStatus {
		got, err := configurations.Lister().Get("c")
		if err != nil || len(got.Status.Initializers) == 0 {
			return &v1alpha1.RegisteredInitializerStatus{Conditions: make([]metav1.Condition, 1)}
		}
		return &got.Status.Initializers[0]
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	writes := func() int {
		return len(slices.DeleteFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "update" }))
	}
	eventually("the first status", func() bool { return writes() == 1 && c.queue.Len() == 0 })
	client.ClearActions()
	resource := v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations")
	for range 10 {
		clock.Step(timing.ReportInterval)
		// The tracker stands for the server, so that the write is not counted as an action. The lister may not have the status yet.
		current, err := client.Tracker().Get(resource, "", "c")
		if err != nil {
			t.Fatal(err)
		}
		updated := current.(*v1alpha1.NamespaceInitializerConfiguration).DeepCopy()
		now := metav1.NewMicroTime(clock.Now())
		updated.Status.Initializers[0].ReportTime = &now
		if !onlyReported(current.(*v1alpha1.NamespaceInitializerConfiguration), updated) {
			t.Fatal("a report counts as another change")
		}
		if err := client.Tracker().Update(resource, updated, ""); err != nil {
			t.Fatal(err)
		}
		eventually("the report", func() bool { return entry().ReportTime.Equal(&now) })
	}
	if n := writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	clock.Step(timing.ReportOverdue - time.Second)
	time.Sleep(20 * time.Millisecond)
	if n := writes(); n != 0 {
		t.Errorf("%d writes before the report is too old", n)
	}
	eventually("the overdue report", func() bool {
		clock.Step(time.Second)
		return entry().Conditions[0].Status == metav1.ConditionFalse
	})
	if n := writes(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	ready := func(reason string) func() bool {
		return func() bool {
			got, err := configurations.Lister().Get("c")
			condition := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady)
			return err == nil && condition != nil && condition.Reason == reason
		}
	}
	eventually("that it is not ready", ready(v1alpha1.ReasonReportOverdue))
	current, err := configurations.Lister().Get("c")
	if err != nil {
		t.Fatal(err)
	}
	updated := current.DeepCopy()
	updated.Status.Initializers[0].ReportTime = new(metav1.NewMicroTime(clock.Now()))
	updated.Status.Initializers[0].Conditions[0].Status = metav1.ConditionTrue // as the server does
	if err := client.Tracker().Update(resource, updated, ""); err != nil {
		t.Fatal(err)
	}
	eventually("that it is ready again, before the next report is due", ready(reasonInForce))
}

// setServed sets the condition Served of the initializers of a configuration.
func setServed(c *v1alpha1.NamespaceInitializerConfiguration, now time.Time) time.Duration {
	var names []string
	for _, initializer := range c.Initializers {
		names = append(names, initializer.Name)
	}
	return SetServed(names, &c.Status.Initializers, c.Generation, now)
}
