/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// watching is a controller that watches required objects on a fake client. The stores hold what the test puts there, unless it runs.
type watching struct {
	*Controller
	client *metadatafake.FakeMetadataClient
	clock  *testingclock.FakeClock

	mu sync.Mutex
	// changed are the namespaces that were reported.
	changed map[string]int
}

func objectMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return m
}

func newWatching(t *testing.T, objects []RequiredObject, live ...runtime.Object) *watching {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &watching{client: metadatafake.NewSimpleMetadataClient(scheme, live...), clock: testingclock.NewFakeClock(startOfTests()), changed: map[string]int{}}
	f.Controller = &Controller{Dependencies: Dependencies{RequiredTimeout: 5 * time.Second}}
	for _, object := range objects {
		w := &objectWatch{RequiredObject: object, client: f.client, mapper: objectMapper(), clock: f.clock, changed: f.change, counts: func(o *metav1.PartialObjectMetadata) bool { return o.Namespace != "open" }}
		if err := w.prepare(); err != nil {
			t.Fatal(err)
		}
		f.required = append(f.required, w)
	}
	return f
}

func (f *watching) change(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed[namespace]++
}

func (f *watching) changes(namespace string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed[namespace]
}

// run runs the watches until the test ends.
func (f *watching) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, w := range f.required {
		running.Go(func() { w.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (f *watching) synced() bool { return f.required[0].informer.HasSynced() }

// accountSince is the metadata of the ServiceAccount "default" of a namespace, created at an offset.
func accountSince(namespace string, created time.Duration, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(startOfTests().Add(created))},
	}
	for _, change := range changes {
		change(object)
	}
	return object
}

func accountDeleting(object *metav1.PartialObjectMetadata) {
	object.DeletionTimestamp = &metav1.Time{Time: startOfTests()}
}

func namespaceOfObjects() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", CreationTimestamp: metav1.NewTime(startOfTests())}}
}

// confirm returns those of the objects that live reads do not find.
func (f *watching) confirm(t *testing.T, missing []*objectWatch) []*objectWatch {
	t.Helper()
	return slices.DeleteFunc(missing, func(w *objectWatch) bool { return w.read(t.Context(), "ns") })
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
		"it exists":                                 {accountSince("ns", time.Second), accountSince("ns", time.Second), true, 0},
		"it was created in the same second":         {accountSince("ns", 0), nil, true, 0},
		"it is being deleted":                       {accountSince("ns", 0, accountDeleting), accountSince("ns", 0), false, 0},
		"it is in another namespace":                {accountSince("other", 0), nil, false, 0},
		"it is a former one":                        {accountSince("ns", -10*time.Second), nil, false, 1},
		"a former one was followed by another":      {accountSince("ns", -10*time.Second), accountSince("ns", time.Second), true, 1},
		"it was created by a server that is behind": {accountSince("ns", -time.Second), accountSince("ns", -time.Second), true, 1},
		"a former one is still being deleted":       {accountSince("ns", -10*time.Second), accountSince("ns", -10*time.Second, accountDeleting), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var live []runtime.Object
			if test.live != nil {
				live = append(live, test.live)
			}
			f := newWatching(t, ObjectsByKubernetes()[:1], live...)
			if test.cached != nil {
				if err := f.required[0].informer.GetStore().Add(test.cached); err != nil {
					t.Fatal(err)
				}
			}
			missing := f.missing(t.Context(), namespaceOfObjects())
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
	f := newWatching(t, ObjectsByKubernetes(), accountSince("ns", 0))
	missing := f.missing(t.Context(), namespaceOfObjects())
	if got, want := describeAll(missing), `serviceaccounts "default" and configmaps "kube-root-ca.crt", which kube-controller-manager creates`; got != want {
		t.Errorf("missing is %s, want %s", got, want)
	}
	if got, want := describeAll(f.confirm(t, missing)), `ConfigMap "kube-root-ca.crt", which kube-controller-manager creates`; got != want {
		t.Errorf("confirmed is %s, want %s", got, want)
	}
	for _, action := range f.client.Actions() {
		list := action.(clienttesting.ListAction)
		if got := list.GetListRestrictions().Fields.String(); action.GetNamespace() != "ns" || !strings.HasPrefix(got, "metadata.name=") {
			t.Errorf("lists %s in %q", got, action.GetNamespace())
		}
	}
}

// TestUntil: the wait goes on while objects appear in other namespaces.
func TestUntil(t *testing.T) {
	at := func(seconds int) time.Time { return startOfTests().Add(time.Duration(seconds) * time.Second) }
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
		"they appear for long":  {5 * time.Second, at(100), [2]time.Time{at(359), at(358)}, at(364)},
		"the timeout is longer": {2 * time.Minute, at(100), [2]time.Time{at(120)}, at(240)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newWatching(t, ObjectsByKubernetes())
			f.RequiredTimeout = test.timeout
			for i, w := range f.required {
				w.appeared, w.problem = test.appeared[i], errors.New("so that the watch need not be synced")
			}
			if got := f.opensAt(f.missing(t.Context(), namespaceOfObjects()), test.since); !got.Equal(test.want) {
				t.Errorf("until %s, want %s", got, test.want)
			}
		})
	}
}

// TestUntilAtStart: a namespace whose wait is over when the process starts does not open before the first list.
func TestUntilAtStart(t *testing.T) {
	f := newWatching(t, ObjectsByKubernetes()[:1])
	release := make(chan struct{})
	f.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	f.run(t)
	eventually(t, "the watch has begun", func() bool {
		f.required[0].mu.Lock()
		defer f.required[0].mu.Unlock()
		return !f.required[0].started.IsZero()
	})
	long := startOfTests().Add(-30 * time.Second)
	missing := f.required
	if got, want := f.opensAt(missing, long), startOfTests().Add(5*time.Second); !got.Equal(want) {
		t.Errorf("before the first list, the wait ends at %s, want %s", got, want)
	}
	close(release)
	eventually(t, "the objects are listed", f.synced)
	if got, want := f.opensAt(missing, long), startOfTests().Add(-25*time.Second); !got.Equal(want) {
		t.Errorf("after the first list, the wait ends at %s, want %s", got, want)
	}
}

// TestRun: the tracker reports each namespace in which an object appears, and when one last appeared.
// The objects of the first list have not just appeared.
func TestRun(t *testing.T) {
	f := newWatching(t, ObjectsByKubernetes()[:1], accountSince("before", -time.Hour, func(o *metav1.PartialObjectMetadata) {
		o.Labels = map[string]string{"a": "b"}
	}))
	f.run(t)
	eventually(t, "the objects are listed", func() bool { return f.synced() && f.changes("before") == 1 })
	if appeared := f.required[0].lastAppeared(); !appeared.IsZero() {
		t.Errorf("an object of the first list appeared at %s", appeared)
	}
	stored, _, _ := f.required[0].informer.GetStore().GetByKey("before/default")
	if object := stored.(*metav1.PartialObjectMetadata); object.Labels != nil || object.Kind != "" {
		t.Errorf("more is kept than is read: %+v", object)
	}

	f.clock.Step(time.Minute)
	accounts := corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	appears := func(namespace string) {
		eventually(t, "a new object is seen", func() bool {
			// The fake client loses events until its watch is open.
			_ = f.client.Tracker().Delete(accounts, namespace, "default")
			if err := f.client.Tracker().Create(accounts, accountSince(namespace, time.Minute), namespace); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			return f.changes(namespace) > 0
		})
	}
	appears("open")
	if appeared := f.required[0].lastAppeared(); !appeared.IsZero() {
		t.Errorf("an object that does not count appeared at %s", appeared)
	}
	appears("ns")
	if got, want := f.required[0].lastAppeared(), startOfTests().Add(time.Minute); !got.Equal(want) {
		t.Errorf("it appeared at %s, want %s", got, want)
	}
	before := f.changes("ns")
	updated := accountSince("ns", time.Minute)
	updated.ResourceVersion = "2"
	if err := f.client.Tracker().Update(accounts, updated, "ns"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an update is seen", func() bool { return f.changes("ns") > before })
	if len(f.missing(t.Context(), namespaceOfObjects())) > 0 {
		t.Error("the object is missing")
	}
}

// TestForbidden: an object that cannot be watched counts as missing, with the reason, until it can.
func TestForbidden(t *testing.T) {
	f := newWatching(t, ObjectsByKubernetes()[:1])
	var mu sync.Mutex
	allowed := false
	f.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return !allowed, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "", errors.New("no"))
	})
	f.run(t)
	unknown := func() bool { return strings.Contains(f.required[0].describe(), "cannot watch") }
	eventually(t, "the refusal is seen", unknown)
	missing := f.missing(t.Context(), namespaceOfObjects())
	if got, want := describeAll(f.confirm(t, missing)),
		`ServiceAccount "default" (which nsinit-controller-manager cannot watch: see its log), which kube-controller-manager creates`; got != want {
		t.Errorf("missing is %s, want %s", got, want)
	}
	if got, want := f.opensAt(missing, startOfTests()), startOfTests().Add(5*time.Second); !got.Equal(want) {
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
		objects, err := ParseRequiredObjects([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		f := newWatching(t, objects)
		if _, err := f.required[0].resource(); errorText(err) != want {
			t.Errorf("%s: error %q, want %q", text, errorText(err), want)
		}
		missing := f.missing(t.Context(), namespaceOfObjects())
		if got := describeAll(f.confirm(t, missing)); got != fmt.Sprintf("%s %q", objects[0].Resource, objects[0].Name) {
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
	f := newWatching(t, ObjectsByKubernetes()[:1])
	late := &lateMapper{RESTMapper: objectMapper()}
	f.required[0].mapper = late
	f.confirm(t, f.missing(t.Context(), namespaceOfObjects()))
	if resets := late.resets.Load(); resets != 0 {
		t.Errorf("a live read caused %d resets", resets)
	}
	f.run(t)
	eventually(t, "the resource is found", f.synced)
}

// TestEndOfWatch: the end of a watch is no problem.
func TestEndOfWatch(t *testing.T) {
	for want, errs := range map[bool][]error{
		false: {io.EOF, io.ErrUnexpectedEOF, apierrors.NewResourceExpired("old")},
		true:  {errors.New("no connection"), apierrors.NewServiceUnavailable("down")},
	} {
		for _, err := range errs {
			w := newWatching(t, ObjectsByKubernetes()[:1]).required[0]
			w.failed(t.Context(), nil, err)
			if (w.problem != nil) != want {
				t.Errorf("%v is a problem: %t", err, !want)
			}
		}
	}
}

// TestParseRequiredObjects: what the flag may be.
func TestParseRequiredObjects(t *testing.T) {
	for name, test := range map[string]struct {
		texts []string
		want  []RequiredObject
		err   string
	}{
		"none":            {nil, nil, ""},
		"the default":     {[]string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"}, ObjectsByKubernetes(), ""},
		"a group":         {[]string{"quotas.example.com/team"}, []RequiredObject{{schema.GroupResource{Group: "example.com", Resource: "quotas"}, "team"}}, ""},
		"no name":         {[]string{"serviceaccounts"}, nil, `"serviceaccounts": write resource[.group]/name, such as serviceaccounts/default`},
		"an empty name":   {[]string{"serviceaccounts/"}, nil, `"serviceaccounts/": write resource[.group]/name, such as serviceaccounts/default`},
		"no resource":     {[]string{"/default"}, nil, `"/default": write resource[.group]/name, such as serviceaccounts/default`},
		"another segment": {[]string{"pods/web/log"}, nil, `"pods/web/log": the name may not contain '/'`},
		"twice":           {[]string{"pods/a", "pods/a"}, nil, `"pods/a": it is listed twice`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRequiredObjects(test.texts)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if message := errorText(err); message != test.err {
				t.Errorf("error %q, want %q", message, test.err)
			}
			for i := range got {
				if got[i].String() != test.texts[i] {
					t.Errorf("%q is written as %q", test.texts[i], got[i])
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
