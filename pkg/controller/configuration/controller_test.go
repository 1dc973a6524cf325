/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func configuration(deletedAt *time.Time) *v1alpha1.NamespaceInitializerConfiguration {
	c := &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "new"},
		Spec:       v1alpha1.NamespaceInitializerConfigurationSpec{Finalizers: []v1alpha1.FinalizerName{"example.com/other", v1alpha1.FinalizerKubernetes}},
	}
	if deletedAt != nil {
		deleted := metav1.NewTime(*deletedAt)
		c.DeletionTimestamp = &deleted
	}
	return c
}

// lifecycle has a and b in its plan, from one incarnation of a configuration.
func lifecycle(name string, uid types.UID, pending ...string) *v1alpha1.NamespaceLifecycle {
	r := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, initializer := range []string{"a.example.com", "b.example.com"} {
		r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: initializer}, Configuration: &v1alpha1.ConfigurationReference{Name: "c", UID: uid}})
	}
	r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}})
	for _, initializer := range pending {
		if r.Spec.Initializers == nil {
			r.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		r.Spec.Initializers.Pending = append(r.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: initializer})
	}
	return r
}

func TestReconcile(t *testing.T) {
	now := start()
	// Only the time since the controller saw the deletion counts, not the clock of the server.
	deleted := now.Add(-time.Hour)
	waits := lifecycle("waits", "new", "b.example.com")
	tests := map[string]struct {
		deletedAt    *time.Time
		after        time.Duration // since the controller saw it
		cached, live *v1alpha1.NamespaceLifecycle
		pending      int32
		reason       string
		finalizers   []v1alpha1.FinalizerName
	}{
		"none waits":                     {nil, 0, nil, nil, 0, "NoConflicts", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one waits":                      {nil, 0, waits, waits, 1, "NoConflicts", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one waits for a former one":     {nil, 0, lifecycle("x", "old", "a.example.com"), nil, 0, "NoConflicts", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one is done":                    {nil, 0, lifecycle("x", "new"), nil, 0, "NoConflicts", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"only the built-in one is left":  {nil, 0, lifecycle("x", "new", v1alpha1.InitializerLifecycle), nil, 0, "NoConflicts", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"its deletion was seen just now": {&deleted, 0, nil, nil, 0, "Draining", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"a creation can still end":       {&deleted, timing.DrainPeriod - 1, nil, nil, 0, "Draining", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"deleted, and one waits":         {&deleted, timing.DrainPeriod, waits, waits, 1, "NamespacesPending", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"the cache does not know of one": {&deleted, timing.DrainPeriod, nil, waits, 0, "Draining", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"deleted and drained, it leaves": {&deleted, timing.DrainPeriod, nil, lifecycle("x", "new"), 0, "Draining", []v1alpha1.FinalizerName{"example.com/other"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			client := nsinitfake.NewClientset()
			stored, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, configuration(test.deletedAt), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.live != nil {
				if _, err := client.NsinitV1alpha1().NamespaceLifecycles().Create(ctx, test.live, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			clock := testingclock.NewFakeClock(now)
			factory := nsinitinformers.NewSharedInformerFactory(client, 0)
			c, err := New(Dependencies{
				Nsinit:         client,
				Configurations: factory.Nsinit().V1alpha1().NamespaceInitializerConfigurations(),
				Lifecycles:     factory.Nsinit().V1alpha1().NamespaceLifecycles(),
				Clock:          clock,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Configurations.Informer().GetStore().Add(stored); err != nil {
				t.Fatal(err)
			}
			if test.cached != nil {
				if err := c.Lifecycles.Informer().GetStore().Add(test.cached); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.reconcile(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			clock.Step(test.after)
			if err := c.reconcile(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			got, err := client.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			reason := ""
			if len(got.Status.Conditions) > 0 {
				reason = got.Status.Conditions[0].Reason
			}
			if got.Status.PendingNamespaces != test.pending || reason != test.reason {
				t.Errorf("pending %d, reason %q", got.Status.PendingNamespaces, reason)
			}
			if diff := cmp.Diff(test.finalizers, got.Spec.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNames: the first in the order of names registers a name, unless it is being deleted.
func TestNames(t *testing.T) {
	named := func(name string, initializers ...string) *v1alpha1.NamespaceInitializerConfiguration {
		c := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, initializer := range initializers {
			c.Initializers = append(c.Initializers, v1alpha1.RegisteredInitializer{Name: initializer})
		}
		return c
	}
	deleted := named("00", "a.example.com", "b.example.com")
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	all := []*v1alpha1.NamespaceInitializerConfiguration{
		named("30", "c.example.com", "b.example.com", "a.example.com"), named("20", "b.example.com", "d.example.com"), named("10", "a.example.com", "b.example.com"), deleted,
	}
	want := map[string]string{
		"00": "NoConflicts",
		"10": "NoConflicts",
		"20": `NameTaken initializers[0] "b.example.com" has no effect because configuration "10" registers it first: remove or rename it`,
		"30": `NameTaken initializers[1] "b.example.com" has no effect because configuration "10" registers it first: remove or rename it; ` +
			`initializers[2] "a.example.com" has no effect because configuration "10" registers it first: remove or rename it`,
	}
	for _, c := range all {
		condition := namesAccepted(c, all)
		got := condition.Reason
		if condition.Status == metav1.ConditionFalse {
			got += " " + condition.Message
		}
		if got != want[c.Name] {
			t.Errorf("%s: %s, want %s", c.Name, got, want[c.Name])
		}
	}
}

// TestOneChangesOthers: a change of one configuration re-queues all of them. A write of
// the controller re-queues only that configuration.
func TestOneChangesOthers(t *testing.T) {
	factory := nsinitinformers.NewSharedInformerFactory(nsinitfake.NewClientset(), 0)
	c, err := New(Dependencies{
		Configurations: factory.Nsinit().V1alpha1().NamespaceInitializerConfigurations(),
		Lifecycles:     factory.Nsinit().V1alpha1().NamespaceLifecycles(),
		Clock:          testingclock.NewFakeClock(start()),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "d", "e"} {
		other := configuration(nil)
		other.Name = name
		if err := c.Configurations.Informer().GetStore().Add(other); err != nil {
			t.Fatal(err)
		}
	}
	deletedAt := start()
	status, generation := configuration(nil), configuration(nil)
	status.Status.PendingNamespaces, generation.Generation = 3, 2
	first := reported(0)
	first.Initializers = nil // as in the others
	later := reported()
	later.Initializers, later.Status.Initializers = nil, []v1alpha1.RegisteredInitializerStatus{{Name: "a.example.com", ReportTime: new(metav1.NowMicro())}}
	deleted := func(c *v1alpha1.NamespaceInitializerConfiguration) *v1alpha1.NamespaceInitializerConfiguration {
		c = c.DeepCopy()
		c.DeletionTimestamp = configuration(&deletedAt).DeletionTimestamp
		return c
	}
	for name, test := range map[string]struct {
		before, updated *v1alpha1.NamespaceInitializerConfiguration
		want            int
	}{
		"its status":                   {configuration(nil), status, 1},
		"its initializers":             {configuration(nil), generation, 3},
		"a first report":               {configuration(nil), first, 3},
		"a report":                     {first, later, 1},
		"a report on one that drains":  {deleted(first), deleted(later), 0},
		"another change of one, later": {deleted(configuration(nil)), deleted(status), 1},
		"it is deleted":                {configuration(nil), configuration(&deletedAt), 3},
	} {
		c.configurationUpdated(test.before, test.updated)
		if c.queue.Len() != test.want {
			t.Errorf("%s: %d are queued, want %d", name, c.queue.Len(), test.want)
		}
		for c.queue.Len() > 0 {
			item, _ := c.queue.Get()
			c.queue.Done(item)
		}
	}
}
