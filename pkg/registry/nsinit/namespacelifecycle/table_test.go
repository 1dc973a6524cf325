/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestWaitingFor shows the columns WAITING FOR, SINCE and MESSAGE.
func TestWaitingFor(t *testing.T) {
	type lifecycle = *nsinit.NamespaceLifecycle
	parallel := func(l lifecycle) {
		for i := range l.Spec.Plan[:4] {
			l.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
		}
	}
	report := func(i int, message string, age time.Duration) func(lifecycle) {
		return func(l lifecycle) {
			start := metav1.NewMicroTime(time.Now().Add(-age))
			l.Status.Initializers[i].Message, l.Status.Initializers[i].StartTime = message, &start
		}
	}
	pending := func(names ...string) func(lifecycle) {
		return func(l lifecycle) {
			l.Spec.Initializers.Pending = nil
			for _, name := range names {
				l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
			}
		}
	}
	for name, test := range map[string]struct {
		changes             []func(lifecycle)
		who, since, message string
	}{
		"one by one":         {nil, "a (+4)", "<unknown>", "<none>"},
		"one, with a report": {[]func(lifecycle){report(0, "half\nway", time.Minute)}, "a (+4)", "60s", "half way"},
		"the last":           {[]func(lifecycle){pending("e")}, "e", "<unknown>", "<none>"},
		"two and two more": {[]func(lifecycle){parallel, pending("b", "d", "e"), report(1, "x", time.Hour), report(3, "y", time.Minute)},
			"b, d (+1)", "60m", `b: "x"; d: "y"`},
		"many":   {[]func(lifecycle){parallel}, "a, b, c (+2)", "<unknown>", "<none>"},
		"none":   {[]func(lifecycle){pending()}, "<none>", "<none>", "<none>"},
		"failed": {[]func(lifecycle){parallel, failedBy("c"), report(2, "no", time.Minute), report(0, "half way", time.Hour)}, "c (+4)", "60s", "no"},
		"deleted": {[]func(lifecycle){func(l lifecycle) {
			l.DeletionTimestamp, l.Spec.Finalizers = &metav1.Time{Time: time.Now().Add(-time.Minute)}, []v1alpha1.FinalizerName{"p", "kubernetes"}
		}}, "p (+1)", "60s", "<none>"},
		"deleted, with reports": {[]func(lifecycle){report(0, "half\nway", time.Hour), report(1, `b"; c: "busy`, time.Hour), func(l lifecycle) {
			l.Status.Initializers[0].LastActor = "dns"
			l.DeletionTimestamp, l.Spec.Finalizers = &metav1.Time{Time: time.Now().Add(-time.Minute)}, []v1alpha1.FinalizerName{"a", "b", "kubernetes"}
		}}, "a, b (+1)", "60s", `a: "half way" ("dns"); b: "b\"; c: \"busy"`},
		"deleted, without participants": {[]func(lifecycle){func(l lifecycle) {
			l.DeletionTimestamp, l.Spec.Finalizers = &metav1.Time{Time: time.Now().Add(-time.Minute)}, []v1alpha1.FinalizerName{"kubernetes"}
		}}, "kubernetes", "60s", "<none>"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &nsinit.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Initializers: &v1alpha1.NamespaceInitializers{}}}
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				l.Spec.Plan = append(l.Spec.Plan, planned(name))
				l.Status.Initializers = append(l.Status.Initializers, v1alpha1.InitializerStatus{Name: name})
			}
			pending("a", "b", "c", "d", "e")(l)
			for _, change := range test.changes {
				change(l)
			}
			if who, since, message := waitingFor(l); who != test.who || since != test.since || message != test.message {
				t.Errorf("got %q, %q, %q", who, since, message)
			}
		})
	}
}

func failedBy(name string) func(*nsinit.NamespaceLifecycle) {
	return func(l *nsinit.NamespaceLifecycle) {
		l.Spec.Initializers.Result, l.Spec.Initializers.FailedInitializer = result("no"), name
	}
}
