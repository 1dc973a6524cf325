/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package sdk

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/util/leader"
)

func nothing(context.Context, *corev1.Namespace) error { return nil }

// registered returns what a configuration registers, as name, policy and finalizer.
func registered(t *testing.T, server *testserver.Server, name string) []v1alpha1.RegisteredInitializer {
	t.Helper()
	configuration, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return configuration.Initializers
}

// TestRegistration: a configuration is created or adopted, and what others wrote into it stays.
func TestRegistration(t *testing.T) {
	t.Parallel()
	ignore, seconds := v1alpha1.Ignore, int32(7)
	mine := v1alpha1.RegisteredInitializer{Name: participant, FailurePolicy: &ignore, TimeoutSeconds: &seconds, Finalizer: true, Holds: new(v1alpha1.HoldContent)}
	other := v1alpha1.RegisteredInitializer{Name: "other.example.com"}
	fail := v1alpha1.Fail
	for name, test := range map[string]struct {
		exists, want []v1alpha1.RegisteredInitializer
	}{
		"there is none":          {nil, []v1alpha1.RegisteredInitializer{mine}},
		"of another client":      {[]v1alpha1.RegisteredInitializer{other}, []v1alpha1.RegisteredInitializer{other, mine}},
		"registered already":     {[]v1alpha1.RegisteredInitializer{mine, other}, []v1alpha1.RegisteredInitializer{mine, other}},
		"it takes part now":      {[]v1alpha1.RegisteredInitializer{{Name: participant}, other}, []v1alpha1.RegisteredInitializer{{Name: participant, Finalizer: true, Holds: new(v1alpha1.HoldContent)}, other}},
		"with another deadline,": {[]v1alpha1.RegisteredInitializer{{Name: participant, FailurePolicy: &ignore, TimeoutSeconds: new(int32(90)), Finalizer: true}}, []v1alpha1.RegisteredInitializer{{Name: participant, FailurePolicy: &ignore, TimeoutSeconds: new(int32(90)), Finalizer: true, Holds: new(v1alpha1.HoldContent)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t)
			server.Core.Allow(participant, testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespaceinitializerconfigurations", Name: "*"})
			if test.exists != nil {
				configuration := testserver.Configuration("c")
				configuration.Initializers = test.exists
				server.MustConfigure(t, configuration)
			}
			runner, _ := startWith(t, server, initializer.Options{
				Name: participant, Initialize: nothing, Finalize: nothing,
				Registration: &initializer.Registration{Configuration: "c", Initializer: v1alpha1.RegisteredInitializer{FailurePolicy: &ignore, TimeoutSeconds: &seconds, Holds: new(v1alpha1.HoldContent)}},
			})
			waitFor(t, "it has registered", runner.HasSynced)
			if diff := cmp.Diff(test.want, registered(t, server, "c")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		server := testserver.Start(t)
		server.Core.Allow(participant, testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespaceinitializerconfigurations", Name: "*"})
		server.MustConfigure(t, testserver.Configuration("earlier", participant))
		server.MustLifecycle(t, "ns")
		runner, _ := startWith(t, server, initializer.Options{Name: participant, Initialize: nothing,
			Registration: &initializer.Registration{Configuration: "c", Initializer: v1alpha1.RegisteredInitializer{FailurePolicy: &fail}}})
		until(t, server, "ns", "a namespace that waits for it is initialized", isActive)
		if got := registered(t, server, "c"); got != nil || runner.HasSynced() {
			t.Errorf("registered: %v, and it is ready: %v", got, runner.HasSynced())
		}
	})
	t.Run("when nsinit is available", func(t *testing.T) {
		t.Parallel()
		server := testserver.Start(t)
		server.Core.Allow(participant, testserver.Rule{Verb: "*", Group: "nsinit.dev", Resource: "namespaceinitializerconfigurations", Name: "*"})
		config := server.Config(participant)
		var tries atomic.Int32
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if tries.Add(1) <= 2 {
					return nil, errors.New("connection refused")
				}
				return next.RoundTrip(request)
			})
		})
		runner, _ := startWith(t, server, initializer.Options{Name: participant, Initialize: nothing, Nsinit: server.ClientFor(t, config),
			Registration: &initializer.Registration{Configuration: "c"}})
		waitFor(t, "it has registered", runner.HasSynced)
		if got := registered(t, server, "c"); len(got) != 1 {
			t.Errorf("registered: %v", got)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testserver.Patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", what)
		}
	}
}

// TestElection: of two replicas one acts. When it stops, the other one does.
func TestElection(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", participant))
	leases := fake.NewClientset(testserver.Namespace("first", "uid-of-first", true), testserver.Namespace("second", "uid-of-second", true))
	election := new(leader.NewElection("system", participant))
	election.LeaseDuration, election.RenewDeadline, election.RetryPeriod = 3*time.Second, 2*time.Second, 50*time.Millisecond
	calls := make(chan string, 10)
	replica := func(name string) (*initializer.Runner, func()) {
		return startWith(t, server, initializer.Options{Name: participant, Election: election, Core: leases, Initialize: func(_ context.Context, namespace *corev1.Namespace) error {
			calls <- name + " " + namespace.Name
			return nil
		}})
	}
	one, stop := replica("one")
	waitFor(t, "the first one acts", one.HasSynced)
	two, _ := replica("two")
	ready := func(r *initializer.Runner) int {
		recorder := httptest.NewRecorder()
		r.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return recorder.Code
	}
	waitFor(t, "both are ready", func() bool { return ready(one) == http.StatusOK && ready(two) == http.StatusOK })
	server.MustLifecycle(t, "first")
	until(t, server, "first", "it is initialized", isActive)
	if two.HasSynced() {
		t.Error("the second one acts, too")
	}
	stop()
	waitFor(t, "the second one acts", two.HasSynced)
	server.MustLifecycle(t, "second")
	until(t, server, "second", "it is initialized", isActive)
	if got := <-calls + ", " + <-calls; got != "one first, two second" || len(calls) > 0 {
		t.Errorf("called: %s, and %d more", got, len(calls))
	}
}

// TestDryRun: the function is called once for each namespace, and nothing changes.
func TestDryRun(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", participant))
	calls := make(chan bool, 10)
	runner, stop := startWith(t, server, initializer.Options{Name: participant, DryRun: true, Initialize: func(ctx context.Context, _ *corev1.Namespace) error {
		calls <- initializer.IsDryRun(ctx)
		return initializer.Progress(ctx, "half way")
	}})
	before := server.MustLifecycle(t, "ns")
	if !<-calls {
		t.Error("it is not told that it is a dry run")
	}
	runner.Retry()
	server.MustLifecycle(t, "another") // which is queued after it
	<-calls
	stop()
	if len(calls) > 0 {
		t.Error("it is called twice for one namespace")
	}
	after := until(t, server, "ns", "it exists", func(*v1alpha1.NamespaceLifecycle) bool { return true })
	if before.ResourceVersion != after.ResourceVersion {
		t.Errorf("the lifecycle has changed: %+v", after)
	}
}

// TestDryRunConfig: requests that change something say that they must not.
func TestDryRunConfig(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		seen = append(seen, request.Method+" "+request.URL.RawQuery)
	}))
	defer server.Close()
	client, err := rest.HTTPClientFor(initializer.DryRunConfig(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/x?fieldManager=me", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	const dry = " dryRun=All&fieldManager=me"
	if diff := cmp.Diff([]string{"GET fieldManager=me", "POST" + dry, "PUT" + dry, "PATCH" + dry, "DELETE" + dry}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHandler: the handler answers probes, and its metrics count the results of calls.
func TestHandler(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("one", participant))
	runner, err := initializer.New(initializer.Options{Name: participant, Initialize: nothing, Core: server.Core.Client(t), Nsinit: server.Client(t, participant)})
	if err != nil {
		t.Fatal(err)
	}
	get := func(r *initializer.Runner, path string) (int, string) {
		recorder := httptest.NewRecorder()
		r.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Code, recorder.Body.String()
	}
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 500, "/metrics": 200, "/other": 404} {
		if code, body := get(runner, path); code != want {
			t.Errorf("before it runs, %s: %d %s", path, code, body)
		}
	}
	runner, _ = startWith(t, server, initializer.Options{Name: participant, Initialize: nothing})
	server.MustLifecycle(t, "ns")
	until(t, server, "ns", "it is done", isActive)
	if code, body := get(runner, "/readyz"); code != 200 {
		t.Errorf("/readyz: %d %s", code, body)
	}
	waitFor(t, "the call is counted", func() bool {
		_, body := get(runner, "/metrics")
		return strings.Contains(body, `nsinit_initializer_calls_total{initializer="a.example.com",operation="initialize",result="done"} 1`) &&
			strings.Contains(body, "\nprocess_resident_memory_bytes ") &&
			strings.Contains(body, `nsinit_initializer_call_duration_seconds_count{initializer="a.example.com",operation="initialize"} 1`) &&
			strings.Contains(body, `nsinit_initializer_calls_in_progress{initializer="a.example.com",operation="initialize"} 0`)
	})
}
