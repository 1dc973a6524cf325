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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/fake"
	nsinitinformers "github.com/nsinit/nsinit/pkg/generated/informers/externalversions"
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

// record has a and b in its plan, from one incarnation of a configuration.
func record(name string, uid types.UID, pending ...string) *v1alpha1.NamespaceLifecycle {
	r := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, initializer := range []string{"a.example.com", "b.example.com"} {
		r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{Name: initializer, Configuration: &v1alpha1.ConfigurationReference{Name: "c", UID: uid}})
	}
	r.Spec.Plan = append(r.Spec.Plan, v1alpha1.PlannedInitializer{Name: v1alpha1.InitializerLifecycle})
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
	drained, fresh := now.Add(-DrainPeriod), now.Add(-time.Second)
	waits := record("waits", "new", "b.example.com")
	tests := map[string]struct {
		deletedAt    *time.Time
		cached, live *v1alpha1.NamespaceLifecycle
		pending      int32
		reason       string
		finalizers   []v1alpha1.FinalizerName
	}{
		"nobody waits":                   {nil, nil, nil, 0, "", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one waits":                      {nil, waits, waits, 1, "", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one waits for a former one":     {nil, record("x", "old", "a.example.com"), nil, 0, "", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"one is done":                    {nil, record("x", "new"), nil, 0, "", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"only the built-in one is left":  {nil, record("x", "new", v1alpha1.InitializerLifecycle), nil, 0, "", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"deleted a moment ago":           {&fresh, nil, nil, 0, "Draining", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"deleted, and one waits":         {&drained, waits, waits, 1, "NamespacesPending", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"the cache does not know of one": {&drained, nil, waits, 0, "Draining", []v1alpha1.FinalizerName{"example.com/other", "kubernetes"}},
		"deleted and drained, it leaves": {&drained, nil, record("x", "new"), 0, "Draining", []v1alpha1.FinalizerName{"example.com/other"}},
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
			factory := nsinitinformers.NewSharedInformerFactory(client, 0)
			c, err := New(Dependencies{
				Nsinit:         client,
				Configurations: factory.Nsinit().V1alpha1().NamespaceInitializerConfigurations(),
				Records:        factory.Nsinit().V1alpha1().NamespaceLifecycles(),
				Clock:          testingclock.NewFakeClock(now),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Configurations.Informer().GetStore().Add(stored); err != nil {
				t.Fatal(err)
			}
			if test.cached != nil {
				if err := c.Records.Informer().GetStore().Add(test.cached); err != nil {
					t.Fatal(err)
				}
			}
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
