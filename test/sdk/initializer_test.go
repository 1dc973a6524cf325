/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/leader"
)

// start runs an initializer against a server until the test ends, as a user that may act
// under its name alone.
func start(t *testing.T, server *testserver.Server, name string, f initializer.Func) (stop func()) {
	t.Helper()
	_, stop = startWith(t, server, initializer.Options{Name: name, Initialize: f})
	return stop
}

// startWith does the same with options of the test's own.
func startWith(t *testing.T, server *testserver.Server, options initializer.Options) (_ *initializer.Runner, stop func()) {
	t.Helper()
	name := options.Name
	server.Core.Allow(name, append(server.Core.Rules(name),
		testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles", Name: "*"},
		testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/initialize", Name: "*"},
		testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/finalize", Name: "*"},
		testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespacelifecycles/status", Name: "*"},
		testserver.Rule{Verb: "initialize", Group: "", Resource: "namespaces", Name: "*"},
		testserver.Rule{Verb: "initialize", Group: "nsinit.dev", Resource: "initializers", Name: name},
		testserver.Rule{Verb: "finalize", Group: "nsinit.dev", Resource: "initializers", Name: name})...)
	if options.Core == nil {
		options.Core = server.Core.Client(t)
	}
	if options.Nsinit == nil {
		options.Nsinit = server.Client(t, name)
	}
	if options.Events == nil {
		options.Events = record.NewFakeRecorder(1000)
	}
	runner, err := initializer.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s ended with %v", name, err)
			}
		case <-time.After(testserver.Patience):
			t.Errorf("%s did not end", name)
		}
	}
	t.Cleanup(stop)
	return runner, stop
}

// until waits until a lifecycle holds what a test expects, and returns it.
func until(t *testing.T, server *testserver.Server, name, what string, holds func(*v1alpha1.NamespaceLifecycle) bool) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	var lifecycle *v1alpha1.NamespaceLifecycle
	err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, testserver.Patience, true, func(ctx context.Context) (bool, error) {
		var err error
		lifecycle, err = server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Get(ctx, name, metav1.GetOptions{})
		return err == nil && holds(lifecycle), err
	})
	if err != nil {
		t.Fatalf("%s: %v; the lifecycle is %+v", what, err, lifecycle)
	}
	return lifecycle
}

func isActive(r *v1alpha1.NamespaceLifecycle) bool { return r.Status.Phase == v1alpha1.LifecycleActive }

// TestInTurn: initializers act one after the other, each once.
func TestInTurn(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	calls := make(chan string, 10)
	for _, name := range []string{"b.example.com", "a.example.com"} {
		start(t, server, name, func(_ context.Context, namespace *corev1.Namespace) error {
			calls <- name + " " + namespace.Name
			return nil
		})
	}
	server.MustLifecycle(t, "ns")
	until(t, server, "ns", "both are done", isActive)
	if got := fmt.Sprint(<-calls, ", ", <-calls); got != "a.example.com ns, b.example.com ns" || len(calls) != 0 {
		t.Errorf("called: %s, and %d more", got, len(calls))
	}
}

// TestErrorIsReportedAndRetried, and so is a panic.
func TestErrorIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"the log store does not answer":   func() error { return errors.New("the log store does not answer") },
		"the initializer panicked: boom":  func() error { panic("boom") },
		strings.Repeat("ä", 2046) + "...": func() error { return errors.New(strings.Repeat("ä", 5000)) },
	} {
		t.Run(name[:10], func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t)
			server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
			var fixed atomic.Bool
			start(t, server, "a.example.com", func(context.Context, *corev1.Namespace) error {
				if fixed.Load() {
					return nil
				}
				return fail()
			})
			server.MustLifecycle(t, "ns")
			lifecycle := until(t, server, "ns", "the error is reported", func(r *v1alpha1.NamespaceLifecycle) bool { return r.Status.Initializers[0].Message != "" })
			if got := lifecycle.Status.Initializers[0].Message; got != name {
				t.Errorf("the message is %q", got)
			}
			if current := helper.Acting(lifecycle); !slices.Equal(current, []string{"a.example.com"}) {
				t.Errorf("it lost its turn to %q", current)
			}
			fixed.Store(true)
			until(t, server, "ns", "the retry succeeds", isActive)
		})
	}
}

// TestFail ends the initialization.
func TestFail(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	start(t, server, "a.example.com", func(context.Context, *corev1.Namespace) error {
		return fmt.Errorf("giving up: %w", initializer.Fail(errors.New("the team has no quota left")))
	})
	server.MustLifecycle(t, "ns")
	lifecycle := until(t, server, "ns", "the failure is reported", func(r *v1alpha1.NamespaceLifecycle) bool {
		return r.Spec.Initializers != nil && r.Spec.Initializers.Result != nil
	})
	if result := lifecycle.Spec.Initializers.Result; result.Status != metav1.StatusFailure || result.Message != "the team has no quota left" {
		t.Errorf("the result is %+v", result)
	}
}

// TestTurnEnds: the context of a call ends when the lifecycle is deleted, and when the
// process stops.
func TestTurnEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *testserver.Server, func()){
		"deletion": func(t *testing.T, server *testserver.Server, _ func()) {
			if err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Delete(context.Background(), "ns", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"stop": func(_ *testing.T, _ *testserver.Server, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t)
			server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
			called, ended := make(chan struct{}, 1), make(chan struct{})
			stop := start(t, server, "a.example.com", func(ctx context.Context, _ *corev1.Namespace) error {
				called <- struct{}{}
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			})
			server.MustLifecycle(t, "ns")
			<-called
			end(t, server, stop)
			select {
			case <-ended:
			case <-time.After(testserver.Patience):
				t.Error("the call was not ended")
			}
			lifecycle := until(t, server, "ns", "it is still pending", func(r *v1alpha1.NamespaceLifecycle) bool { return r.Spec.Initializers != nil })
			if message := lifecycle.Status.Initializers[0].Message; message != "" {
				t.Errorf("the end of the turn was reported: %q", message)
			}
		})
	}
}

// TestOtherIncarnation: the initializer ignores a lifecycle of another namespace than the live one.
func TestOtherIncarnation(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	server.MustLifecycle(t, "former")
	server.Core.SetNamespace(testserver.Namespace("former", types.UID("new"), true))
	server.MustLifecycle(t, "zz-current")
	calls := make(chan string, 10)
	start(t, server, "a.example.com", func(_ context.Context, namespace *corev1.Namespace) error {
		calls <- namespace.Name
		return nil
	})
	until(t, server, "zz-current", "the other one is done", isActive)
	if got := <-calls; got != "zz-current" || len(calls) != 0 {
		t.Errorf("called for %s, and %d more", got, len(calls))
	}
}

// TestRemovalAfterConflict: another client updates the lifecycle during the call, and the initializer removes itself.
func TestRemovalAfterConflict(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	calls := 0
	start(t, server, "a.example.com", func(ctx context.Context, namespace *corev1.Namespace) error {
		calls++
		return initializer.Progress(ctx, "half way") // changes the resourceVersion
	})
	server.MustLifecycle(t, "ns")
	lifecycle := until(t, server, "ns", "it is done", isActive)
	if calls != 1 {
		t.Errorf("called %d times", calls)
	}
	if got := lifecycle.Status.Initializers[0].Message; got != "" {
		t.Errorf("the message of a finished initializer is %q", got)
	}
}

// TestRetryMeetsNextIncarnation: the lifecycle is replaced by that of the next namespace of its name just before the
// initializer removes itself. The retry does not change the new lifecycle, and the initializer acts for the new namespace.
func TestRetryMeetsNextIncarnation(t *testing.T) {
	t.Parallel()
	const name = "a.example.com"
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", name))
	config := server.Config(name)
	var once sync.Once
	replaced := make(chan struct{})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/ns/initialize") {
				once.Do(func() {
					replaceLifecycle(t, server, "ns", "next")
					close(replaced)
				})
			}
			return next.RoundTrip(request)
		})
	})
	calls := make(chan types.UID, 10)
	startWith(t, server, initializer.Options{Name: name, Nsinit: server.ClientFor(t, config), Initialize: func(_ context.Context, namespace *corev1.Namespace) error {
		calls <- namespace.UID
		return nil
	}})
	server.MustLifecycle(t, "ns")
	<-replaced
	until(t, server, "ns", "the next one is done", isActive)
	if got := fmt.Sprint(<-calls, " ", len(calls)); got != "uid-of-ns 1" {
		t.Fatalf("called first, and how often after that: %s", got)
	}
	if got := <-calls; got != "next" {
		t.Errorf("called for %s", got)
	}
}

// replaceLifecycle removes a namespace and its lifecycle, and creates both again.
func replaceLifecycle(t *testing.T, server *testserver.Server, name string, uid types.UID) {
	t.Helper()
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	lifecycle, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	lifecycle.Spec.Finalizers = nil
	if _, err := client.Finalize(t.Context(), name, lifecycle, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	server.Core.SetNamespace(testserver.Namespace(name, uid, true))
	if _, err := client.Create(t.Context(), testserver.Lifecycle(name, uid), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestStopsClean: a runner that was stopped leaves no goroutine behind.
func TestStopsClean(t *testing.T) {
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", "a.example.com"))
	stop := start(t, server, "a.example.com", func(context.Context, *corev1.Namespace) error { return nil })
	server.MustLifecycle(t, "ns")
	until(t, server, "ns", "it is done", isActive)
	running := func() bool {
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Contains(stacks, []byte("initializer.(*Runner)"))
	}
	if !running() {
		t.Fatal("a running runner is not seen")
	}
	stop()
	if running() {
		t.Error("a goroutine of the runner is left")
	}
}

func TestOptions(t *testing.T) {
	_, err := initializer.New(initializer.Options{Name: "unqualified", Workers: -1, DryRun: true,
		Registration: &initializer.Registration{Initializer: v1alpha1.RegisteredInitializer{Holds: new(v1alpha1.HoldContent)}}, Election: &leader.Election{Namespace: "a"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{`Name "unqualified"`, "Initialize is missing", "Core is missing", "Nsinit is missing", "Workers is -1",
		"Registration.Configuration is missing", `Holds is "Content", but Finalize is missing`, "Election: Namespace is \"a\" and Name \"\"", "LeaseDuration 0s must be longer", "DryRun excludes Registration and Election"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}
