/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// inParallel returns a server on which these initializers act at the same time.
func inParallel(t *testing.T, names ...string) *testserver.Server {
	t.Helper()
	server := testserver.Start(t)
	configuration := testserver.Configuration("parallel", names...)
	for i := range configuration.Initializers {
		configuration.Initializers[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
	server.MustConfigure(t, configuration)
	return server
}

// TestAtTheSameTime: several initializers of one process have their turns in the same namespaces. They finish at one
// instant, after each was called once, and none is lost.
func TestAtTheSameTime(t *testing.T) {
	t.Parallel()
	names := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com", "e.example.com"}
	server := inParallel(t, names...)
	var mu sync.Mutex
	calls, together := map[string]int{}, map[string]*sync.WaitGroup{}
	var namespaces []string
	for i := range 8 {
		namespaces = append(namespaces, fmt.Sprintf("ns-%d", i))
		together[namespaces[i]] = &sync.WaitGroup{}
		together[namespaces[i]].Add(len(names))
	}
	for _, name := range names {
		_, _ = startWith(t, server, initializer.Options{Name: name, Workers: len(namespaces), Initialize: func(_ context.Context, namespace *corev1.Namespace) error {
			mu.Lock()
			calls[namespace.Name+" "+name]++
			first := calls[namespace.Name+" "+name] == 1
			mu.Unlock()
			if first {
				together[namespace.Name].Done()
			}
			together[namespace.Name].Wait()
			return nil
		}})
	}
	for _, namespace := range namespaces {
		server.MustLifecycle(t, namespace)
	}
	for _, namespace := range namespaces {
		lifecycle := until(t, server, namespace, "all are done", isActive)
		for _, entry := range lifecycle.Status.Initializers {
			if entry.State != v1alpha1.InitializerDone || entry.LastActor != entry.Name || calls[namespace+" "+entry.Name] != 1 {
				t.Errorf("%s: called %d times: %+v", namespace, calls[namespace+" "+entry.Name], entry)
			}
		}
	}
}

// TestFailAtTheSameTime: one of two initializers that act at the same time fails. The failure names it, and ends the turn of the other.
func TestFailAtTheSameTime(t *testing.T) {
	t.Parallel()
	server := inParallel(t, "a.example.com", "b.example.com")
	called, ended := make(chan struct{}), make(chan struct{})
	start(t, server, "a.example.com", func(ctx context.Context, _ *corev1.Namespace) error {
		if err := initializer.Progress(ctx, "half way"); err != nil {
			return err
		}
		close(called)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	start(t, server, "b.example.com", func(context.Context, *corev1.Namespace) error {
		<-called
		return initializer.Fail(errors.New("the team has no quota left"))
	})
	server.MustLifecycle(t, "ns")
	lifecycle := until(t, server, "ns", "the failure is reported", func(r *v1alpha1.NamespaceLifecycle) bool { return helper.Failure(r) != nil })
	<-ended
	if got := lifecycle.Spec.Initializers.FailedInitializer; got != "b.example.com" {
		t.Errorf("%q failed", got)
	}
	if a, b := helper.Entry(lifecycle, "a.example.com"), helper.Entry(lifecycle, "b.example.com"); a.State == v1alpha1.InitializerFailed || a.Message != "half way" ||
		b.State != v1alpha1.InitializerFailed || b.Message != "the team has no quota left" {
		t.Errorf("the entries are %+v and %+v", a, b)
	}
}

// TestOtherFinishesFirst: another initializer removes itself and one that waits gets its turn between the call and the
// write. The write removes no other name.
func TestOtherFinishesFirst(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	configuration := testserver.Configuration("parallel", "a.example.com", "b.example.com", "c.example.com")
	configuration.Initializers[0].Ordering = &v1alpha1.InitializerOrdering{}
	configuration.Initializers[1].Ordering = &v1alpha1.InitializerOrdering{}
	configuration.Initializers[2].Ordering = &v1alpha1.InitializerOrdering{After: []string{"a.example.com"}}
	server.MustConfigure(t, configuration)
	var calls atomic.Int32
	start(t, server, "b.example.com", func(ctx context.Context, namespace *corev1.Namespace) error {
		calls.Add(1)
		client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
		lifecycle, err := client.Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		helper.RemovePending(lifecycle, "a.example.com")
		_, err = client.Initialize(ctx, namespace.Name, lifecycle, metav1.UpdateOptions{})
		return err
	})
	server.MustLifecycle(t, "ns")
	lifecycle := until(t, server, "ns", "b is done", func(r *v1alpha1.NamespaceLifecycle) bool { return !slices.Contains(helper.Pending(r), "b.example.com") })
	if got := helper.Acting(lifecycle); !slices.Equal(got, []string{"c.example.com"}) || calls.Load() != 1 {
		t.Errorf("called %d times, it is the turn of %q: %+v", calls.Load(), got, lifecycle.Status.Initializers)
	}
}

// TestOverDuringCall: the turn of an initializer ends while it acts. It is not called again, and reports no error.
func TestOverDuringCall(t *testing.T) {
	t.Parallel()
	skip := func(lifecycle *v1alpha1.NamespaceLifecycle) {
		lifecycle.Spec.Skipped = []string{"a.example.com"}
		helper.RemovePending(lifecycle, "a.example.com")
	}
	for name, test := range map[string]struct {
		names []string
		end   func(*v1alpha1.NamespaceLifecycle)
		want  v1alpha1.InitializerState
	}{
		"it is skipped":                {[]string{"a.example.com"}, skip, v1alpha1.InitializerSkipped},
		"it is skipped, another waits": {[]string{"a.example.com", "b.example.com"}, skip, v1alpha1.InitializerSkipped},
		"another one fails": {[]string{"a.example.com", "b.example.com"}, func(lifecycle *v1alpha1.NamespaceLifecycle) {
			lifecycle.Spec.Initializers.FailedInitializer = "b.example.com"
			lifecycle.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure}
		}, v1alpha1.InitializerRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := inParallel(t, test.names...)
			var calls atomic.Int32
			events := record.NewFakeRecorder(10)
			runner, stop := startWith(t, server, initializer.Options{Name: "a.example.com", Events: events, Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
				calls.Add(1)
				client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
				lifecycle, err := client.Get(ctx, namespace.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				test.end(lifecycle)
				_, err = client.Initialize(context.WithoutCancel(ctx), namespace.Name, lifecycle, metav1.UpdateOptions{})
				return err
			}})
			server.MustLifecycle(t, "ns")
			const over = `nsinit_initializer_calls_total{initializer="a.example.com",operation="initialize",result="over"} 1`
			waitFor(t, "the call has ended because the turn is over", func() bool {
				recorder := httptest.NewRecorder()
				runner.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				return strings.Contains(recorder.Body.String(), over)
			})
			stop()
			lifecycle := until(t, server, "ns", "it exists", func(*v1alpha1.NamespaceLifecycle) bool { return true })
			if got := helper.Entry(lifecycle, "a.example.com").State; calls.Load() != 1 || len(events.Events) > 0 || got != test.want {
				t.Errorf("called %d times, %d events, the state is %s", calls.Load(), len(events.Events), got)
			}
		})
	}
}
