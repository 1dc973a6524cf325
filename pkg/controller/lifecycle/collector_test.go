/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"fmt"
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
	for name, age := range map[string]time.Duration{"f": 3 * time.Second, "g": 40 * time.Second, "h": -time.Second} {
		lifecycle := aLifecycle(held("p.example.com", "kubernetes"))
		lifecycle.Name, lifecycle.Status.Phase, lifecycle.DeletionTimestamp = name, v1alpha1.LifecycleTerminating, &metav1.Time{Time: now.Add(-age)}
		if name == "h" {
			lifecycle.Spec.Finalizers = append(lifecycle.Spec.Finalizers, "q.example.com") // the clock of the server is ahead
		}
		if err := store.Add(lifecycle); err != nil {
			t.Fatal(err)
		}
	}
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	registry := metrics.NewKubeRegistry()
	if err := registry.CustomRegister(NewCollector(corelisters.NewNamespaceLister(namespaces), listers.NewNamespaceLifecycleLister(store), clocktesting.NewFakePassiveClock(now))); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP nsinit_lifecycle_oldest_turn_seconds [ALPHA] How long the longest current turn of an initializer has lasted, in seconds.
# TYPE nsinit_lifecycle_oldest_turn_seconds gauge
nsinit_lifecycle_oldest_turn_seconds{initializer="four.example.com"} 0
nsinit_lifecycle_oldest_turn_seconds{initializer="one.example.com"} 90
nsinit_lifecycle_oldest_turn_seconds{initializer="three.example.com"} 0
nsinit_lifecycle_oldest_turn_seconds{initializer="two.example.com"} 7
# HELP nsinit_lifecycle_participant_age_seconds [ALPHA] How long the oldest deleted namespace has waited for a participant, in seconds.
# TYPE nsinit_lifecycle_participant_age_seconds gauge
nsinit_lifecycle_participant_age_seconds{participant="p.example.com"} 40
nsinit_lifecycle_participant_age_seconds{participant="q.example.com"} 0
# HELP nsinit_lifecycle_pending_namespaces [ALPHA] Number of closed namespaces, as the leader sees them.
# TYPE nsinit_lifecycle_pending_namespaces gauge
nsinit_lifecycle_pending_namespaces 0
# HELP nsinit_lifecycles [ALPHA] Number of NamespaceLifecycles in each phase, as the leader sees them.
# TYPE nsinit_lifecycles gauge
nsinit_lifecycles{phase="Active"} 1
nsinit_lifecycles{phase="Initializing"} 4
nsinit_lifecycles{phase="Terminating"} 3
# HELP nsinit_lifecycle_turns [ALPHA] Number of namespaces in which an initializer has its turn. Several initializers can have their turn in the same namespace.
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

// TestCleanups: each participant is measured once, when it has cleaned up: by the update that the others survive, or by the removal of the
// NamespaceLifecycle.
func TestCleanups(t *testing.T) {
	f := newFixture(t, namespace(), aLifecycle())
	registry := metrics.NewKubeRegistry()
	if err := f.Metrics.Register(registry.Register); err != nil {
		t.Fatal(err)
	}
	lifecycle := func(options ...lifecycleOption) *v1alpha1.NamespaceLifecycle {
		return aLifecycle(append(options, func(r *v1alpha1.NamespaceLifecycle) {
			r.DeletionTimestamp = &metav1.Time{Time: startOfTests().Add(-4 * time.Second)}
		})...)
	}
	removed := func(l *v1alpha1.NamespaceLifecycle, unknown *cache.DeletedFinalStateUnknown) {
		f.lifecycleDeleted(cache.DeletedObject[*v1alpha1.NamespaceLifecycle]{OptionalObj: l, FinalStateUnknown: unknown})
	}
	f.lifecycleUpdated(aLifecycle(held("live.example.com", "kubernetes")), aLifecycle(held("kubernetes")))
	f.lifecycleUpdated(aLifecycle(held("p.example.com", "q.example.com", "kubernetes")), lifecycle(held("p.example.com", "q.example.com", "kubernetes")))
	f.lifecycleUpdated(lifecycle(held("p.example.com", "q.example.com", "kubernetes")), lifecycle(held("q.example.com", "kubernetes")))
	f.lifecycleUpdated(lifecycle(held("q.example.com", "kubernetes")), lifecycle(held("q.example.com")))
	another := lifecycle()
	another.UID = "another"
	f.lifecycleUpdated(lifecycle(held("former.example.com")), another)
	removed(lifecycle(held("q.example.com")), nil)
	removed(nil, &cache.DeletedFinalStateUnknown{Key: "ns"})
	removed(lifecycle(held("late.example.com")), &cache.DeletedFinalStateUnknown{Key: "ns"})
	for name, want := range map[string]string{"p.example.com": "1 of 4s", "q.example.com": "1 of 4s", "live.example.com": "0 of 0s", "former.example.com": "0 of 0s", "late.example.com": "0 of 0s"} {
		cleanups := f.Metrics.cleanups.WithLabelValues(name)
		count, countErr := testutil.GetHistogramMetricCount(cleanups)
		sum, err := testutil.GetHistogramMetricValue(cleanups)
		if got := fmt.Sprintf("%d of %.0fs", count, sum); got != want || err != nil || countErr != nil {
			t.Errorf("%s: measured %s, want %s, %v %v", name, got, want, err, countErr)
		}
	}
}
