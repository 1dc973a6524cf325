/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// requiring is a fixture whose namespaces need a ServiceAccount.
type requiring struct {
	*fixture
	metadata *metadatafake.FakeMetadataClient
}

// accountClient returns a client of ServiceAccounts that answers what the test adds.
func accountClient() (meta.RESTMapper, *metadatafake.FakeMetadataClient) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.ReactionChain = nil
	return mapper, client
}

// account is the metadata of the ServiceAccount "default" of a namespace.
func account(namespace string, created time.Time) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", CreationTimestamp: metav1.NewTime(created)}}
}

// accounts answers live reads with an account, or with none.
func accounts(account *metav1.PartialObjectMetadata) *metav1.List {
	list := &metav1.List{}
	if account != nil {
		list.Items = append(list.Items, runtime.RawExtension{Object: account})
	}
	return list
}

// doneAt sets when the initializers were done, by the server's clock, in relation to the fixture's.
func doneAt(offset time.Duration) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) {
		early, late := metav1.NewMicroTime(startOfTests().Add(offset-time.Hour)), metav1.NewMicroTime(startOfTests().Add(offset))
		r.CreationTimestamp = metav1.NewTime(early.Time)
		r.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a", EndTime: &late}, {Name: "b", EndTime: &early}, {Name: "c"}}
	}
}

// created sets when the lifecycle of a namespace without initializers was created.
func created(offset time.Duration) lifecycleOption {
	return func(r *v1alpha1.NamespaceLifecycle) { r.CreationTimestamp = metav1.NewTime(startOfTests().Add(offset)) }
}

func newRequiring(t *testing.T, namespace *corev1.Namespace, lifecycle *v1alpha1.NamespaceLifecycle) *requiring {
	t.Helper()
	namespace.CreationTimestamp = metav1.NewTime(startOfTests().Add(-2 * time.Hour))
	f := &requiring{fixture: newFixture(t, namespace, lifecycle)}
	mapper, client := accountClient()
	required := &objectWatch{RequiredObject: ObjectsByKubernetes()[0], client: client, mapper: mapper, clock: f.Clock, changed: f.objectChanged, counts: f.objectCounts}
	if err := required.prepare(); err != nil {
		t.Fatal(err)
	}
	f.required, f.metadata, f.RequiredTimeout = []*objectWatch{required}, client, 5*time.Second
	f.live(nil)
	return f
}

// live makes an account all that a live read finds.
func (f *requiring) live(account *metav1.PartialObjectMetadata) {
	f.metadata.ReactionChain = nil
	f.metadata.AddReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, accounts(account), nil })
}

// appear makes the watch show an account.
func (f *requiring) appear(t *testing.T) {
	t.Helper()
	if err := f.required[0].informer.GetStore().Add(account("ns", startOfTests())); err != nil {
		t.Fatal(err)
	}
	f.objectChanged("ns")
}

// after lets time pass, reconciles with a current cache, and returns what was written.
func (f *requiring) after(t *testing.T, d time.Duration) []string {
	t.Helper()
	f.Clock.(*testingclock.FakeClock).Step(d)
	f.core.ClearActions()
	f.nsinit.ClearActions()
	if err := f.reconcile(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	writes := f.writes()
	current, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.cache(current, nil)
	return writes
}

func (f *requiring) closed() bool {
	current, err := f.namespaces.Get("ns")
	return err == nil && helper.IsClosed(current)
}

const waitingForAccount = `Initializing=True ObjectsMissing waiting for serviceaccounts "default", which kube-controller-manager creates, since 2026-01-01T00:00:00Z; ` +
	"without it, the namespace opens after 5s in which no such object appears in any namespace"

// TestWaitsForObjects: an initialized namespace opens when its objects exist. It reports a wait that lasts, once.
func TestWaitsForObjects(t *testing.T) {
	for name, lifecycle := range map[string]*v1alpha1.NamespaceLifecycle{
		"initializers": aLifecycle(doneAt(0)), "an empty plan": aLifecycle(created(0)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newRequiring(t, namespace(closed), lifecycle)
			if writes := f.after(t, 0); len(writes) > 0 {
				t.Errorf("it immediately writes %v", writes)
			}
			if diff := cmp.Diff([]string{"patch namespaces/status"}, f.after(t, reportWaitAfter)); diff != "" {
				t.Errorf("once it lasts (-want +got):\n%s", diff)
			}
			if got := f.condition(t, v1alpha1.ConditionInitializing); got != waitingForAccount {
				t.Errorf("%q, want %q", got, waitingForAccount)
			}
			if writes := f.after(t, time.Second); len(writes) > 0 || !f.closed() {
				t.Errorf("later, it writes %v", writes)
			}
			if requests := f.metadata.Actions(); len(requests) > 0 {
				t.Errorf("the wait sends requests: %v", requests)
			}
			f.appear(t)
			if diff := cmp.Diff([]string{"patch namespaces/status"}, f.after(t, 0)); diff != "" || f.closed() {
				t.Errorf("when the object exists (-want +got):\n%s", diff)
			}
			if got, want := f.condition(t, v1alpha1.ConditionReady), "Ready=True Initialized "+serverMessage; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestWaitWakes: the wait needs no event to be reported and to end.
func TestWaitWakes(t *testing.T) {
	f := newRequiring(t, namespace(closed), aLifecycle(created(0)))
	for _, step := range []time.Duration{reportWaitAfter, 5*time.Second - reportWaitAfter} {
		f.after(t, 0)
		f.Clock.(*testingclock.FakeClock).Step(step)
		eventually(t, "the name is re-queued", func() bool { return f.queue.Len() == 1 })
		key, _ := f.queue.Get()
		f.queue.Done(key)
	}
	if f.after(t, 0); f.closed() {
		t.Error("the wait did not end")
	}
}

// TestOpensWithoutObjects: at the bound, the namespace opens, and reports what did not exist until it does.
func TestOpensWithoutObjects(t *testing.T) {
	f := newRequiring(t, namespace(closed), aLifecycle(created(0)))
	registry := metrics.NewKubeRegistry()
	if err := f.Metrics.Register(registry.Register); err != nil {
		t.Fatal(err)
	}
	f.after(t, 0)
	if f.after(t, 5*time.Second-time.Nanosecond); !f.closed() {
		t.Fatal("it opened before the timeout")
	}
	if f.after(t, time.Nanosecond); f.closed() {
		t.Fatal("it did not open at the timeout")
	}
	const without = serverMessage + `; the namespace was opened without ServiceAccount "default", which kube-controller-manager creates; see: kubectl nsinit why ns`
	if got, want := f.condition(t, v1alpha1.ConditionReady), "Ready=True ObjectsMissing "+without; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := <-f.events.Events, "Warning ObjectsMissing The namespace is open: "+without; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP nsinit_lifecycle_gate_openings_without_object_total [ALPHA] Number of namespaces whose gate this instance opened although a required object did not exist. The label names the missing object. The flag --required-objects lists the required objects.
# TYPE nsinit_lifecycle_gate_openings_without_object_total counter
nsinit_lifecycle_gate_openings_without_object_total{object="serviceaccounts/default"} 1
`), "nsinit_lifecycle_gate_openings_without_object_total"); err != nil {
		t.Error(err)
	}
	if writes := f.after(t, time.Hour); len(writes) > 0 {
		t.Errorf("without the object, it writes %v", writes)
	}
	f.appear(t)
	if f.queue.Len() != 1 {
		t.Error("the name is not re-queued when the object appears")
	}
	f.after(t, 0)
	if got, want := f.condition(t, v1alpha1.ConditionReady), "Ready=True Initialized "+serverMessage; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if f.objectChanged("ns"); f.queue.Len() != 1 {
		t.Error("the name of a namespace that lacks nothing is re-queued")
	}
}

// lacking is a namespace that was opened without an object.
func lacking(n *corev1.Namespace) {
	n.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionReady, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonObjectsMissing}}
}

// TestObjectCounts: what appears in an open namespace that is not new proves nothing, because a tenant can create it.
func TestObjectCounts(t *testing.T) {
	closed := newRequiring(t, namespace(closed), aLifecycle())
	open := newRequiring(t, namespace(), aLifecycle())
	since := open.Namespaces.Informer().GetStore().List()[0].(*corev1.Namespace).CreationTimestamp.Time
	for name, test := range map[string]struct {
		in   *requiring
		name string
		at   time.Time
		want bool
	}{
		"a closed namespace": {closed, "ns", since.Add(time.Hour), true},
		"a new one":          {open, "ns", since.Add(maxBacklog), true},
		"an open one":        {open, "ns", since.Add(maxBacklog + time.Second), false},
		"one without it":     {newRequiring(t, namespace(lacking), aLifecycle()), "ns", since.Add(time.Hour), true},
		"an unknown one":     {open, "other", since.Add(time.Hour), true},
	} {
		if got := test.in.objectCounts(account(test.name, test.at)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestLiveReadAtTimeout: an object that the watch has not seen is found before the gate opens.
func TestLiveReadAtTimeout(t *testing.T) {
	f := newRequiring(t, namespace(closed), aLifecycle(created(0)))
	f.after(t, 0)
	f.live(account("ns", startOfTests()))
	f.after(t, 5*time.Second)
	if got, want := f.condition(t, v1alpha1.ConditionReady), "Ready=True Initialized "+serverMessage; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWaitAfterRestart: a process that starts does not begin the wait again. It adds the largest difference of the
// clocks to the time that the server wrote.
func TestWaitAfterRestart(t *testing.T) {
	for name, test := range map[string]struct {
		done time.Duration
		wait time.Duration
	}{
		"just done":                   {0, 5 * time.Second},
		"the server's clock is ahead": {time.Hour, 5 * time.Second},
		"done some time ago":          {-timing.MaxClockSkew - 3*time.Second, 2 * time.Second},
		"done long ago":               {-time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRequiring(t, namespace(closed), aLifecycle(doneAt(test.done)))
			f.after(t, 0)
			if test.wait > 0 {
				if !f.closed() {
					t.Fatal("it opened immediately")
				}
				if f.after(t, test.wait-time.Nanosecond); !f.closed() {
					t.Fatal("it opened too early")
				}
				f.after(t, time.Nanosecond)
			}
			if f.closed() {
				t.Errorf("it is closed after %s", test.wait)
			}
		})
	}
}

// TestNoWait: namespaces that are not opened by the controller do not wait.
func TestNoWait(t *testing.T) {
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		lifecycle *v1alpha1.NamespaceLifecycle
	}{
		"adopted":                   {namespace(), aLifecycle()},
		"opened by hand":            {namespace(opener("alice")), aLifecycle(pending("a"))},
		"an initializer is missing": {namespace(closed), aLifecycle(pending("a"))},
		"failed":                    {namespace(closed), aLifecycle(pending("a"), failed)},
		"being deleted":             {namespace(closed, deleting), aLifecycle()},
		"another incarnation":       {namespace(closed), aLifecycle(former)},
		"no lifecycle":              {namespace(closed), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRequiring(t, test.namespace, test.lifecycle)
			s := state{namespace: test.namespace, lifecycle: test.lifecycle}
			f.measure(t.Context(), "ns", &s)
			if s.objects.wait || len(s.objects.missing) > 0 {
				t.Errorf("it waits: %+v", s.objects)
			}
		})
	}
}

// TestWaitWhileUnlisted: a namespace that is read live, because NamespaceLifecycles cannot be listed, waits too.
func TestWaitWhileUnlisted(t *testing.T) {
	f := newRequiring(t, namespace(closed), aLifecycle(created(0)))
	f.listing.problem = unreadableError()
	if f.after(t, 0); !f.closed() {
		t.Error("it opened without the object")
	}
	f.appear(t)
	if f.after(t, 0); f.closed() {
		t.Error("it did not open with the object")
	}
}

// TestOpeningFails: a write that fails is no opening, and its retry still reports the object.
func TestOpeningFails(t *testing.T) {
	f := newRequiring(t, namespace(closed), aLifecycle(created(0)))
	f.after(t, 0)
	f.Clock.(*testingclock.FakeClock).Step(5 * time.Second)
	f.core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no connection")
	})
	if err := f.reconcile(t.Context(), "ns"); err == nil || len(f.events.Events) > 0 {
		t.Errorf("error %v, and %d events", err, len(f.events.Events))
	}
	f.core.ReactionChain = slices.Delete(f.core.ReactionChain, 0, 1)
	if f.after(t, 0); f.closed() {
		t.Error("it did not open later")
	}
	if got := f.condition(t, v1alpha1.ConditionReady); !strings.HasPrefix(got, "Ready=True ObjectsMissing ") {
		t.Errorf("the condition is %q", got)
	}
}
