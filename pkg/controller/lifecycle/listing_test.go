/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// TestObserve: which results of lists are a problem.
func TestObserve(t *testing.T) {
	away, corrupt := errors.New("away"), unreadableError()
	type result struct {
		err     error
		cached  string
		unknown bool // the cache was never filled
		silent  bool
	}
	tests := map[string]struct {
		results []result
		problem error
	}{
		"all is well":                           {[]result{{}, {}}, nil},
		"one failure":                           {[]result{{err: away}}, nil},
		"two failures":                          {[]result{{err: away}, {err: away}}, away},
		"an object cannot be decoded":           {[]result{{err: corrupt}}, corrupt},
		"not filled":                            {[]result{{unknown: true}, {unknown: true}}, nil},
		"the failures are over":                 {[]result{{err: away}, {err: away}, {}}, nil},
		"they are over, but it is not filled":   {[]result{{err: away, unknown: true}, {err: away, unknown: true}, {unknown: true}}, away},
		"it was deleted, and watches continue":  {[]result{{err: corrupt, cached: "1"}, {cached: "1"}, {cached: "2"}}, nil},
		"it was deleted, and watches are stuck": {[]result{{err: corrupt, cached: "1"}, {cached: "1"}, {cached: "1"}}, corrupt},
		"it was deleted, while lists failed":    {[]result{{err: corrupt, cached: "1"}, {err: away, cached: "2"}, {cached: "2"}}, nil},
		"it was deleted, after other failures":  {[]result{{err: away, cached: "1"}, {err: away, cached: "1"}, {err: corrupt, cached: "2"}, {cached: "2"}}, corrupt},
		"a silent watch":                        {[]result{{cached: "1", silent: true}, {cached: "1"}}, errSilent},
		"a silent watch that continues":         {[]result{{cached: "1", silent: true}, {cached: "2"}}, nil},
		"failures that do not follow":           {[]result{{err: away}, {}, {err: away}}, nil},
		"the second failure is another":         {[]result{{err: away}, {err: corrupt}}, corrupt},
		"a problem that becomes another":        {[]result{{err: corrupt}, {err: away}}, away},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, problem := listing{}, error(nil)
			for _, r := range test.results {
				before := l.current()
				var changed bool
				problem, changed = l.observe(r.err, r.cached, !r.unknown, r.silent)
				if changed != ((before == nil) != (problem == nil)) {
					t.Errorf("changed is %t from %v to %v", changed, before, problem)
				}
				if again := r.err != nil || problem != nil; l.doubt != again {
					t.Errorf("another list is due: %t", !again)
				}
			}
			if !errors.Is(problem, test.problem) || (problem == nil) != (test.problem == nil) {
				t.Errorf("the problem is %v, want %v", problem, test.problem)
			}
		})
	}
}

func unreadableError() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonStoreReadError, Message: "key /registry/x"}}
}

// TestNoPolling: nothing is listed while namespaces wait and the informer works.
func TestNoPolling(t *testing.T) {
	f := newFixture(t, namespace(closed), nil)
	f.filled = func() bool { return true }
	f.nsinit.PrependReactor("create", "namespacelifecycles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*v1alpha1.NamespaceLifecycle).DeepCopy()
		created.ResourceVersion = "7"
		return true, created, nil
	})
	if err := f.handle(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	f.dequeue(t, listKey, cacheDelay)
	f.listing.seen = "6" // a fake informer has no version
	for _, check := range []struct {
		created []string
		cached  string
		due     bool
	}{
		{nil, "6", true}, {[]string{"7"}, "7", false}, {[]string{"8"}, "9", false}, {[]string{"10"}, "", false},
		{[]string{"10", "11"}, "10", false}, {[]string{"12"}, "10", true}, {nil, "10", false}, {nil, "11", false}, {nil, "11", true}, {nil, "12", false},
	} {
		for _, version := range check.created {
			f.expect(version)
		}
		if due, stuck := f.isDue(check.cached); due != check.due || stuck != check.due {
			t.Errorf("after versions %q, the cache has version %q, which needs a list: %t", check.created, check.cached, due)
		}
	}
	f.checkList(t.Context())
	for _, action := range f.nsinit.Actions() {
		if action.GetVerb() == "list" {
			t.Errorf("%v", action)
		}
	}
	if f.queue.Len() != 0 {
		t.Errorf("%d names are queued", f.queue.Len())
	}
}

// dequeue lets time pass in steps until a key is queued, and removes it.
func (f *fixture) dequeue(t *testing.T, want string, step time.Duration) {
	t.Helper()
	eventually(t, want+" is queued", func() bool {
		f.Clock.(*testingclock.FakeClock).Step(step)
		return f.queue.Len() > 0
	})
	key, _ := f.queue.Get()
	f.queue.Done(key)
	if key != want {
		t.Errorf("%s is queued", key)
	}
}

// TestInformerFails: a request of the informer that fails causes lists until one succeeds. Meanwhile, every namespace that waits is
// re-queued, and afterwards every name.
func TestInformerFails(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			f := newFixture(t, namespace(closed), aLifecycle(pending("a")))
			f.filled = func() bool { return true }
			open := namespace(func(n *corev1.Namespace) { n.Name = "open" })
			f.cache(open, nil)
			tooMany := apierrors.NewTooManyRequests("storage is (re)initializing", 1)
			informer := f.newInformer(f.Nsinit, 0)
			f.nsinit.PrependReactor(verb, "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tooMany })
			f.nsinit.PrependWatchReactor("namespacelifecycles", func(clienttesting.Action) (bool, watch.Interface, error) { return verb == "watch", nil, tooMany })
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				informer.RunWithContext(ctx)
			}()
			eventually(t, "the informer fails", func() bool { return f.queue.Len() > 0 })
			cancel()
			<-stopped // it may fail again
			f.dequeue(t, listKey, 0)
			list := unreadableError()
			f.nsinit.PrependReactor("list", "namespacelifecycles", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if options := action.(clienttesting.ListActionImpl).ListOptions; options.Limit != onePage || options.FieldSelector != "" {
					t.Errorf("etcd does not answer a list with %+v", options)
				}
				if list == nil {
					return true, &v1alpha1.NamespaceLifecycleList{}, nil
				}
				return true, nil, list
			})
			for range 2 {
				if err := f.handle(t.Context(), listKey); err != nil {
					t.Fatal(err)
				}
				f.dequeue(t, "ns", 0)
				f.dequeue(t, listKey, listInterval)
			}
			if _ = f.suspect(tooMany); f.queue.Len() != 0 {
				t.Error("a list is made although one is planned")
			}
			list, f.listing.stuck = nil, "before"
			f.checkList(t.Context())
			if f.queue.Len() != 2 || f.listing.current() != nil {
				t.Errorf("%d names are queued; %v", f.queue.Len(), f.listing.current())
			}
		})
	}
}

// TestSettle: the controller starts with a cache that is filled, or when lists fail.
func TestSettle(t *testing.T) {
	f := newFixture(t, nil, nil)
	f.filled = func() bool { return true }
	if err := f.settle(t.Context()); err != nil || len(f.nsinit.Actions()) > 0 {
		t.Errorf("filled: %v, %v", err, f.nsinit.Actions())
	}
	f.filled = func() bool { return false }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: %v", err)
	}
	f.nsinit.PrependReactor("list", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, unreadableError() })
	if err := f.settle(t.Context()); err != nil || f.listing.current() == nil {
		t.Errorf("lists fail: %v, %v", err, f.listing.current())
	}
}

// TestUnlisted: while NamespaceLifecycles cannot be listed, a namespace whose own can be read goes on,
// one whose own cannot says why, and nothing opens on what the cache says.
func TestUnlisted(t *testing.T) {
	lost := errors.New("storage was lost")
	unregistered := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1alpha1.Resource("namespacelifecycles"), "ns", "404 page not found", 0, true)
	tests := map[string]struct {
		namespace *corev1.Namespace
		live      *v1alpha1.NamespaceLifecycle
		problem   error
		read      error
		writes    []string
		says      string
	}{
		"its turn":                          {namespace(closed), aLifecycle(pending("a")), unreadableError(), nil, []string{"patch namespaces/status"}, "key /registry/x; an administrator"},
		"nothing is pending":                {namespace(closed), aLifecycle(), unreadableError(), nil, []string{"patch namespaces/status"}, ""},
		"its own is corrupt":                {namespace(closed), aLifecycle(), unreadableError(), apierrors.NewInternalError(errors.New("own")), []string{"patch namespaces/status"}, `cannot read NamespaceLifecycle "ns", and retries: Internal error occurred: own; an administrator`},
		"no lifecycle, nothing can be read": {namespace(closed), nil, lost, nil, []string{"patch namespaces/status", "create namespacelifecycles"}, "and retries: no room"},
		"nothing can be read":               {namespace(closed), aLifecycle(), lost, lost, []string{"patch namespaces/status"}, `cannot read NamespaceLifecycle "ns", and retries: storage was lost`},
		"the API is not registered":         {namespace(closed), aLifecycle(), unregistered, unregistered, []string{"patch namespaces/status"}, `cannot read NamespaceLifecycle "ns", and retries: nsinit-apiserver is not ready, so its API is not registered`},
		"the removal waits":                 {namespace(deleting, emptied), aLifecycle(leaving), lost, lost, []string{"patch namespaces/status"}, ""},
		"its content is deleted":            {namespace(deleting), aLifecycle(leaving), lost, lost, nil, ""},
		"its participants can be notified":  {namespace(deleting), aLifecycle(held("p.example.com")), unreadableError(), nil, []string{"delete namespacelifecycles uid=lifecycle"}, ""},
		"it is open":                        {namespace(), aLifecycle(pending("a")), unreadableError(), lost, nil, ""},
		"it is deleted":                     {namespace(ready, deleting), aLifecycle(), unreadableError(), lost, []string{"patch namespaces/status"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, test.live)
			f.listing.problem = test.problem
			if test.live != nil {
				f.cache(nil, aLifecycle(pending("old")))
			}
			if test.read != nil {
				f.nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.read })
			}
			f.nsinit.PrependReactor("create", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("no room")
			})
			fails := strings.Contains(test.says, "retries") || slices.Contains([]string{"the removal waits", "its content is deleted"}, name)
			if err := f.reconcile(t.Context(), "ns"); (err != nil) != fails {
				t.Fatalf("its error is %v", err)
			}
			if got := f.writes(); !slices.Equal(got, test.writes) {
				t.Errorf("written: %v", got)
			}
			live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if opened := test.says == "" && len(test.writes) > 0; helper.IsClosed(test.namespace) && helper.IsClosed(live) == opened {
				t.Errorf("closed: %t", helper.IsClosed(live))
			}
			if test.says != "" && !slices.ContainsFunc(live.Status.Conditions, func(c corev1.NamespaceCondition) bool {
				return c.Type == v1alpha1.ConditionInitializing && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, test.says)
			}) {
				t.Errorf("it says %v", live.Status.Conditions)
			}
		})
	}
}
