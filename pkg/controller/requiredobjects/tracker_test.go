/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package requiredobjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// fixture is a tracker on a fake client. Its store holds what the test puts there, unless it runs.
type fixture struct {
	*Tracker
	client *metadatafake.FakeMetadataClient
	clock  *testingclock.FakeClock

	mu sync.Mutex
	// changed are the namespaces that the tracker reported.
	changed map[string]int
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return m
}

func newFixture(t *testing.T, objects []Object, live ...runtime.Object) *fixture {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fixture{client: metadatafake.NewSimpleMetadataClient(scheme, live...), clock: testingclock.NewFakeClock(start()), changed: map[string]int{}}
	tracker, err := New(Dependencies{Objects: objects, Metadata: f.client, Mapper: mapper(), Clock: f.clock, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := tracker.OnChange(f.change); err != nil {
		t.Fatal(err)
	}
	f.Tracker = tracker
	return f
}

func (f *fixture) change(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed[namespace]++
}

func (f *fixture) changes(namespace string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed[namespace]
}

// run runs the tracker until the test ends.
func (f *fixture) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (f *fixture) synced() bool { return f.Informers()[0].HasSynced() }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("it never came true that %s", what)
		}
	}
}

// account is the metadata of the ServiceAccount "default" of a namespace, created at an offset.
func account(namespace string, created time.Duration, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(start().Add(created))},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

func deleting(object *metav1.PartialObjectMetadata) {
	object.DeletionTimestamp = &metav1.Time{Time: start()}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start())}}
}

// TestMissing: an object counts if it belongs to this namespace, and not to a former one of the same name.
// There is a request only if the watch does not show which of the two it is.
func TestMissing(t *testing.T) {
	for name, test := range map[string]struct {
		cached, live *metav1.PartialObjectMetadata
		exists       bool
		requests     int
	}{
		"it does not exist":                         {nil, nil, false, 0},
		"it exists":                                 {account("ns", time.Second), account("ns", time.Second), true, 0},
		"it was created in the same second":         {account("ns", 0), nil, true, 0},
		"it is being deleted":                       {account("ns", 0, deleting), account("ns", 0), false, 0},
		"it is in another namespace":                {account("other", 0), nil, false, 0},
		"it is a former one":                        {account("ns", -10*time.Second), nil, false, 1},
		"a former one was followed by another":      {account("ns", -10*time.Second), account("ns", time.Second), true, 1},
		"it was created by a server that is behind": {account("ns", -time.Second), account("ns", -time.Second), true, 1},
		"a former one is still being deleted":       {account("ns", -10*time.Second), account("ns", -10*time.Second, deleting), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var live []runtime.Object
			if test.live != nil {
				live = append(live, test.live)
			}
			f := newFixture(t, ByKubernetes()[:1], live...)
			if test.cached != nil {
				if err := f.Informers()[0].GetStore().Add(test.cached); err != nil {
					t.Fatal(err)
				}
			}
			missing := f.Missing(t.Context(), namespace("ns"))
			if exists := len(missing) == 0; exists != test.exists {
				t.Errorf("missing: %v, want it to exist: %t", missing, test.exists)
			}
			if got := len(f.client.Actions()); got != test.requests {
				t.Errorf("%d requests, want %d: %v", got, test.requests, f.client.Actions())
			}
		})
	}
}

// TestConfirm: at the end of the wait, a live read finds what the watch has not seen.
func TestConfirm(t *testing.T) {
	f := newFixture(t, ByKubernetes(), account("ns", 0))
	missing := f.Missing(t.Context(), namespace("ns"))
	if got, want := Describe(missing), `serviceaccounts "default" and configmaps "kube-root-ca.crt", which kube-controller-manager creates`; got != want {
		t.Errorf("missing is %s, want %s", got, want)
	}
	if got, want := Describe(f.Confirm(t.Context(), namespace("ns"), missing)), `ConfigMap "kube-root-ca.crt", which kube-controller-manager creates`; got != want {
		t.Errorf("confirmed is %s, want %s", got, want)
	}
	if len(missing) != 2 {
		t.Error("Confirm changed its argument")
	}
	for _, action := range f.client.Actions() {
		list := action.(clienttesting.ListAction)
		if got := list.GetListRestrictions().Fields.String(); action.GetNamespace() != "ns" || !strings.HasPrefix(got, "metadata.name=") {
			t.Errorf("lists %s in %q", got, action.GetNamespace())
		}
	}
}

// TestUntil: the wait is bounded, and goes on while objects appear in other namespaces.
func TestUntil(t *testing.T) {
	at := func(seconds int) time.Time { return start().Add(time.Duration(seconds) * time.Second) }
	for name, test := range map[string]struct {
		timeout time.Duration
		since   time.Time
		// appeared is when the objects appeared elsewhere. A zero time: never.
		appeared [2]time.Time
		want     time.Time
	}{
		"never seen":            {5 * time.Second, at(100), [2]time.Time{}, at(105)},
		"they appeared before":  {5 * time.Second, at(100), [2]time.Time{at(10), at(99)}, at(105)},
		"one appears":           {5 * time.Second, at(100), [2]time.Time{at(103)}, at(108)},
		"the other appears":     {5 * time.Second, at(100), [2]time.Time{at(103), at(120)}, at(125)},
		"they appear for long":  {5 * time.Second, at(100), [2]time.Time{at(159), at(158)}, at(160)},
		"the timeout is longer": {2 * time.Minute, at(100), [2]time.Time{at(120)}, at(220)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ByKubernetes())
			f.Timeout = test.timeout
			for i, w := range f.watches {
				w.appeared, w.problem = test.appeared[i], errors.New("so that the watch need not be synced")
			}
			if got := f.Until(f.Missing(t.Context(), namespace("ns")), test.since); !got.Equal(test.want) {
				t.Errorf("until %s, want %s", got, test.want)
			}
		})
	}
}

// TestUntilAtStart: a namespace whose wait is over when the process starts does not open before the first list.
func TestUntilAtStart(t *testing.T) {
	f := newFixture(t, ByKubernetes()[:1])
	release := make(chan struct{})
	f.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	f.run(t)
	eventually(t, "the watch has begun", func() bool {
		f.watches[0].mu.Lock()
		defer f.watches[0].mu.Unlock()
		return !f.watches[0].started.IsZero()
	})
	long := start().Add(-30 * time.Second)
	missing := []Missing{f.watches[0].missing()}
	if got, want := f.Until(missing, long), start().Add(5*time.Second); !got.Equal(want) {
		t.Errorf("before the first list, the wait ends at %s, want %s", got, want)
	}
	close(release)
	eventually(t, "the objects are listed", f.synced)
	if got, want := f.Until(missing, long), start().Add(-25*time.Second); !got.Equal(want) {
		t.Errorf("after the first list, the wait ends at %s, want %s", got, want)
	}
}

// TestRun: the tracker reports each namespace in which an object appears, and when one last appeared.
// The objects of the first list have not just appeared.
func TestRun(t *testing.T) {
	f := newFixture(t, ByKubernetes()[:1], account("before", -time.Hour, func(o *metav1.PartialObjectMetadata) {
		o.Labels = map[string]string{"a": "b"}
	}))
	f.run(t)
	eventually(t, "the objects are listed", func() bool { return f.synced() && f.changes("before") == 1 })
	if appeared := f.watches[0].lastAppeared(); !appeared.IsZero() {
		t.Errorf("an object of the first list appeared at %s", appeared)
	}
	stored, _, _ := f.Informers()[0].GetStore().GetByKey("before/default")
	if object := stored.(*metav1.PartialObjectMetadata); object.Labels != nil || object.Kind != "" {
		t.Errorf("more is kept than is read: %+v", object)
	}

	f.clock.Step(time.Minute)
	accounts := corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	eventually(t, "a new object is seen", func() bool {
		// The fake client loses events until its watch is open.
		_ = f.client.Tracker().Delete(accounts, "ns", "default")
		if err := f.client.Tracker().Create(accounts, account("ns", time.Minute), "ns"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		return f.changes("ns") > 0
	})
	if got, want := f.watches[0].lastAppeared(), start().Add(time.Minute); !got.Equal(want) {
		t.Errorf("it appeared at %s, want %s", got, want)
	}
	before := f.changes("ns")
	updated := account("ns", time.Minute)
	updated.ResourceVersion = "2"
	if err := f.client.Tracker().Update(accounts, updated, "ns"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an update is seen", func() bool { return f.changes("ns") > before })
	if len(f.Missing(t.Context(), namespace("ns"))) > 0 {
		t.Error("the object is missing")
	}
}

// TestForbidden: an object that cannot be watched counts as missing, with the reason, until it can.
func TestForbidden(t *testing.T) {
	f := newFixture(t, ByKubernetes()[:1])
	var mu sync.Mutex
	allowed := false
	f.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return !allowed, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "", errors.New("no"))
	})
	f.run(t)
	unknown := func() bool { return f.watches[0].missing().Unknown }
	eventually(t, "the refusal is seen", unknown)
	missing := f.Missing(t.Context(), namespace("ns"))
	if got, want := Describe(f.Confirm(t.Context(), namespace("ns"), missing)),
		`ServiceAccount "default" (which nsinit-controller-manager cannot watch: see its log), which kube-controller-manager creates`; got != want {
		t.Errorf("missing is %s, want %s", got, want)
	}
	if got, want := f.Until(missing, start()), start().Add(5*time.Second); !got.Equal(want) {
		t.Errorf("the wait ends at %s, want %s", got, want)
	}
	mu.Lock()
	allowed = true
	mu.Unlock()
	eventually(t, "the objects can be listed", func() bool { return f.synced() && !unknown() })
}

// TestResource: a resource that does not exist, or that is not namespaced, is an error that names it.
func TestResource(t *testing.T) {
	for text, want := range map[string]string{
		"quotas.example.com/team": `cannot find the resource quotas.example.com: no matches for example.com/, Resource=quotas`,
		"nodes/a":                 "the resource nodes is not namespaced",
	} {
		objects, err := Parse([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		f := newFixture(t, objects)
		if _, err := f.watches[0].resource(); errorText(err) != want {
			t.Errorf("%s: error %q, want %q", text, errorText(err), want)
		}
		missing := f.Missing(t.Context(), namespace("ns"))
		if got := fmt.Sprint(f.Confirm(t.Context(), namespace("ns"), missing)); got != fmt.Sprintf("[%s %q]", objects[0].Resource, objects[0].Name) {
			t.Errorf("missing is %s", got)
		}
	}
}

// lateMapper finds resources only after a reset, as one that has cached the discovery.
type lateMapper struct {
	meta.RESTMapper
	resets atomic.Int32
}

func (m *lateMapper) Reset() { m.resets.Add(1) }

func (m *lateMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	if m.resets.Load() == 0 {
		return schema.GroupVersionKind{}, &meta.NoResourceMatchError{PartialResource: resource}
	}
	return m.RESTMapper.KindFor(resource)
}

// TestServedLater: a resource that is served later is found without a restart. Live reads do not repeat the discovery.
func TestServedLater(t *testing.T) {
	f := newFixture(t, ByKubernetes()[:1])
	late := &lateMapper{RESTMapper: mapper()}
	f.watches[0].mapper = late
	f.Confirm(t.Context(), namespace("ns"), f.Missing(t.Context(), namespace("ns")))
	if resets := late.resets.Load(); resets != 0 {
		t.Errorf("a live read caused %d resets", resets)
	}
	f.run(t)
	eventually(t, "the resource is found", f.synced)
}

// TestIsProblem: the end of a watch is no problem.
func TestIsProblem(t *testing.T) {
	for want, errs := range map[bool][]error{
		false: {io.EOF, io.ErrUnexpectedEOF, apierrors.NewResourceExpired("old")},
		true:  {errors.New("no connection"), apierrors.NewServiceUnavailable("down")},
	} {
		for _, err := range errs {
			if isProblem(err) != want {
				t.Errorf("%v is a problem: %t", err, !want)
			}
		}
	}
}
