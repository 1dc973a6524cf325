/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

func TestCollector(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(name string, phase v1alpha1.LifecyclePhase, age time.Duration, current ...string) {
		t.Helper()
		lifecycle := aLifecycle()
		if len(current) > 0 {
			lifecycle = aLifecycle(pending(current...), inParallel)
		}
		lifecycle.Name, lifecycle.Status.Phase = name, phase
		for i := range current {
			lifecycle.Status.Initializers[i].StartTime = new(metav1.NewMicroTime(now.Add(-age)))
		}
		if err := store.Add(lifecycle); err != nil {
			t.Fatal(err)
		}
	}
	add("a", v1alpha1.LifecycleInitializing, 7*time.Second, "one.example.com", "two.example.com")
	add("b", v1alpha1.LifecycleInitializing, 90*time.Second, "one.example.com")
	add("c", v1alpha1.LifecycleInitializing, -time.Second, "three.example.com")
	if err := store.Add(&v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: aLifecycle(pending("four.example.com")).Spec,
		Status: v1alpha1.NamespaceLifecycleStatus{Phase: v1alpha1.LifecycleInitializing}}); err != nil {
		t.Fatal(err)
	}
	add("d", v1alpha1.LifecycleActive, 0)
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	registry := metrics.NewKubeRegistry()
	if err := registry.CustomRegister(NewCollector(corelisters.NewNamespaceLister(namespaces), listers.NewNamespaceLifecycleLister(store), clocktesting.NewFakePassiveClock(now))); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP nsinit_lifecycle_oldest_turn_seconds [ALPHA] Age of the oldest of these turns, in seconds.
# TYPE nsinit_lifecycle_oldest_turn_seconds gauge
nsinit_lifecycle_oldest_turn_seconds{initializer="four.example.com"} 0
nsinit_lifecycle_oldest_turn_seconds{initializer="one.example.com"} 90
nsinit_lifecycle_oldest_turn_seconds{initializer="three.example.com"} 0
nsinit_lifecycle_oldest_turn_seconds{initializer="two.example.com"} 7
# HELP nsinit_lifecycle_pending_namespaces [ALPHA] Number of namespaces whose gate is closed, as the leader sees them.
# TYPE nsinit_lifecycle_pending_namespaces gauge
nsinit_lifecycle_pending_namespaces 0
# HELP nsinit_lifecycles [ALPHA] Number of NamespaceLifecycles by phase, as the leader sees them.
# TYPE nsinit_lifecycles gauge
nsinit_lifecycles{phase="Active"} 1
nsinit_lifecycles{phase="Initializing"} 4
nsinit_lifecycles{phase="Terminating"} 0
# HELP nsinit_lifecycle_turns [ALPHA] Number of namespaces in which an initializer has its turn, by the initializer. A namespace can wait for several initializers.
# TYPE nsinit_lifecycle_turns gauge
nsinit_lifecycle_turns{initializer="four.example.com"} 1
nsinit_lifecycle_turns{initializer="one.example.com"} 2
nsinit_lifecycle_turns{initializer="three.example.com"} 1
nsinit_lifecycle_turns{initializer="two.example.com"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestEnded: each entry is counted once, when it ends.
func TestEnded(t *testing.T) {
	at := func(seconds int64) *metav1.MicroTime { return new(metav1.NewMicroTime(time.Unix(seconds, 0))) }
	lifecycle := func(uid types.UID, entry v1alpha1.InitializerStatus) *v1alpha1.NamespaceLifecycle {
		return &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: v1alpha1.NamespaceLifecycleStatus{Initializers: []v1alpha1.InitializerStatus{entry}}}
	}
	waiting := v1alpha1.InitializerStatus{Name: "a"}
	running := v1alpha1.InitializerStatus{Name: "a", StartTime: at(1)}
	done := v1alpha1.InitializerStatus{Name: "a", StartTime: at(1), EndTime: at(4), State: v1alpha1.InitializerDone}
	never := v1alpha1.InitializerStatus{Name: "a", EndTime: at(4), State: v1alpha1.InitializerSkipped}
	for name, test := range map[string]struct {
		before, after v1alpha1.InitializerStatus
		want          int
	}{
		"it begins":           {waiting, running, 0},
		"it ends":             {running, done, 1},
		"it begins and ends":  {waiting, done, 1},
		"it had ended before": {done, done, 0},
		"it never had a turn": {waiting, never, 0},
	} {
		if got := ended(lifecycle("r", test.before), lifecycle("r", test.after)); len(got) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := ended(lifecycle("r", running), lifecycle("another", done)); len(got) != 0 {
		t.Errorf("another lifecycle: %v", got)
	}
}
