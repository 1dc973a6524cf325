/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package recordlifecycle

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// fixture is a plugin with a cache and a core API that the test fills.
type fixture struct {
	*Plugin
	clock *testingclock.FakeClock
	cache func(...*corev1.Namespace)
	live  map[string]*corev1.Namespace
	reads int
	err   error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{clock: testingclock.NewFakeClock(time.Now()), live: map[string]*corev1.Namespace{}}
	f.Plugin = New(sets.New("default", "kube-system", "kube-public"), f.clock)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	f.SetExternalKubeInformerFactory(factory)
	f.synced = func() bool { return true }
	f.cache = func(namespaces ...*corev1.Namespace) {
		for _, namespace := range namespaces {
			if err := factory.Core().V1().Namespaces().Informer().GetStore().Add(namespace); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.SetNamespaceReader(func(_ context.Context, name string) (*corev1.Namespace, error) {
		f.reads++
		if f.err != nil {
			return nil, f.err
		}
		if namespace := f.live[name]; namespace != nil {
			return namespace, nil
		}
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	})
	if err := f.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return f
}

func namespace(phase corev1.NamespacePhase) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: corev1.NamespaceStatus{Phase: phase}}
	if phase == corev1.NamespaceTerminating {
		now := metav1.Now()
		n.DeletionTimestamp = &now
	}
	return n
}

// request makes one. An empty namespace is that of what is in none.
func request(operation admission.Operation, resource schema.GroupResource, namespace, name, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, namespace, name, resource.WithVersion("v1"), subresource, operation, nil, false, nil)
}

func ofRecord(operation admission.Operation, name string) admission.Attributes {
	return request(operation, nsinit.Resource("namespacelifecycles"), "", name, "")
}

// validate answers a request while the clock goes on by itself.
func (f *fixture) validate(t *testing.T, attributes admission.Attributes) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.Validate(t.Context(), attributes, nil) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Millisecond):
			if f.clock.HasWaiters() {
				f.clock.Step(missingWait)
			}
		}
	}
}

// TestRule1Immortal: the records of immortal namespaces cannot be deleted.
func TestRule1Immortal(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		if err := f.validate(t, ofRecord(admission.Delete, name)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.validate(t, ofRecord(admission.Delete, "ns")); err != nil {
		t.Errorf("another: %v", err)
	}
}

// TestRule1NothingToProtect: a record of an immortal namespace that has neither a plan nor
// participants can be deleted.
func TestRule1NothingToProtect(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]struct {
		spec      nsinit.NamespaceLifecycleSpec
		forbidden bool
	}{
		"nothing":      {nsinit.NamespaceLifecycleSpec{Finalizers: []nsinit.FinalizerName{nsinit.FinalizerKubernetes}}, false},
		"released":     {nsinit.NamespaceLifecycleSpec{}, false},
		"a plan":       {nsinit.NamespaceLifecycleSpec{Plan: []nsinit.PlannedInitializer{{Name: "a.example.com"}}}, true},
		"participants": {nsinit.NamespaceLifecycleSpec{Finalizers: []nsinit.FinalizerName{nsinit.FinalizerKubernetes, "a.example.com"}}, true},
	} {
		attributes := admission.NewAttributesRecord(nil, &nsinit.NamespaceLifecycle{Spec: test.spec}, schema.GroupVersionKind{}, "", "default",
			nsinit.Resource("namespacelifecycles").WithVersion("v1"), "", admission.Delete, nil, false, nil)
		if err := f.validate(t, attributes); apierrors.IsForbidden(err) != test.forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRule2Passes: what is in no namespace passes, deletions pass, and access reviews pass,
// none of them with a look at a namespace.
func TestRule2Passes(t *testing.T) {
	f := newFixture(t)
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	for name, attributes := range map[string]admission.Attributes{
		"what is in no namespace":          request(admission.Create, nsinit.Resource("namespaceinitializerconfigurations"), "", "c", ""),
		"a deletion":                       request(admission.Delete, things, "ns", "t", ""),
		"a deletion in an immortal":        request(admission.Delete, things, "default", "t", ""),
		"an access review":                 request(admission.Create, schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}, "ns", "", ""),
		"an update of a record":            ofRecord(admission.Update, "ns"),
		"a post to a record's subresource": request(admission.Create, nsinit.Resource("namespacelifecycles"), "", "ns", "finalize"),
	} {
		if err := f.validate(t, attributes); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.reads != 0 {
		t.Errorf("%d namespaces were read", f.reads)
	}
}

// TestRule3Exists: a namespace must exist: in the cache, in the cache a little later, or live.
func TestRule3Exists(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	tests := map[string]struct {
		prepare func(*fixture)
		request admission.Attributes
		want    func(error) bool
		reads   int
	}{
		"cached":             {func(f *fixture) { f.cache(namespace(corev1.NamespaceActive)) }, ofRecord(admission.Create, "ns"), nil, 0},
		"only live":          {func(f *fixture) { f.live["ns"] = namespace(corev1.NamespaceActive) }, ofRecord(admission.Create, "ns"), nil, 1},
		"nowhere":            {func(*fixture) {}, ofRecord(admission.Create, "ns"), apierrors.IsNotFound, 1},
		"nowhere, in it":     {func(*fixture) {}, request(admission.Create, things, "ns", "t", ""), apierrors.IsNotFound, 1},
		"nowhere, an update": {func(*fixture) {}, request(admission.Update, things, "ns", "t", ""), apierrors.IsNotFound, 1},
		"the cache is not filled": {func(f *fixture) { f.cache(namespace(corev1.NamespaceActive)); f.synced = func() bool { return false } },
			ofRecord(admission.Create, "ns"), apierrors.IsNotFound, 1},
		"nobody can tell": {func(f *fixture) { f.err = errors.New("no answer") }, ofRecord(admission.Create, "ns"), apierrors.IsServiceUnavailable, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			test.prepare(f)
			err := f.validate(t, test.request)
			if test.want == nil && err != nil || test.want != nil && !test.want(err) {
				t.Errorf("%v", err)
			}
			if f.reads != test.reads {
				t.Errorf("%d live reads, want %d", f.reads, test.reads)
			}
		})
	}
}

// TestRule3Wait: the cache gets 50 ms to learn of a namespace, no more, and less if the request
// ends before.
func TestRule3Wait(t *testing.T) {
	f := newFixture(t)
	done := make(chan error, 1)
	go func() { done <- f.Validate(t.Context(), ofRecord(admission.Create, "ns"), nil) }()
	for !f.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	f.cache(namespace(corev1.NamespaceActive))
	f.clock.Step(missingWait - time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	f.clock.Step(time.Millisecond)
	if err := <-done; err != nil || f.reads != 0 {
		t.Errorf("%v, after %d live reads", err, f.reads)
	}

	f = newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- f.Validate(ctx, ofRecord(admission.Create, "ns"), nil) }()
	for !f.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a request that has ended was let through")
	}
}

// TestRule4Terminating: nothing new for a namespace that is being terminated, with the cause
// that clients know.
func TestRule4Terminating(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	for name, attributes := range map[string]admission.Attributes{"a record": ofRecord(admission.Create, "ns"), "what is in it": request(admission.Create, things, "ns", "t", "")} {
		f := newFixture(t)
		f.cache(namespace(corev1.NamespaceTerminating))
		if err := f.validate(t, attributes); !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := newFixture(t)
	f.cache(namespace(corev1.NamespaceTerminating))
	if err := f.validate(t, request(admission.Update, things, "ns", "t", "")); err != nil {
		t.Errorf("an update: %v", err)
	}
}

// TestRule5Memory: for 30 s after a deletion, a cache that knows nothing of it is not believed.
func TestRule5Memory(t *testing.T) {
	f := newFixture(t)
	f.cache(namespace(corev1.NamespaceActive))
	f.live["ns"] = namespace(corev1.NamespaceTerminating)
	if err := f.validate(t, ofRecord(admission.Create, "ns")); err != nil || f.reads != 0 {
		t.Errorf("before the deletion: %v, %d live reads", err, f.reads)
	}
	if err := f.validate(t, ofRecord(admission.Delete, "ns")); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(deletionMemory - time.Second)
	if err := f.validate(t, ofRecord(admission.Create, "ns")); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || f.reads != 1 {
		t.Errorf("after it: %v, %d live reads", err, f.reads)
	}
	f.clock.Step(2 * time.Second)
	if err := f.validate(t, ofRecord(admission.Create, "ns")); err != nil || f.reads != 1 {
		t.Errorf("long after it: %v, %d live reads", err, f.reads)
	}
}
