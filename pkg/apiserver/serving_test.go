/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestStoredAsProtobuf reads etcd itself.
func TestStoredAsProtobuf(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.MustLifecycle(t, "ns")
	response, err := etcdClient(t, server.EtcdEndpoint).Get(context.Background(), "/registry/nsinit.dev/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	for _, kv := range response.Kvs {
		stored[string(kv.Key)] = bytes.HasPrefix(kv.Value, []byte("k8s\x00"))
	}
	want := map[string]bool{
		"/registry/nsinit.dev/storage-identity":                                true,
		"/registry/nsinit.dev/nsinit.dev/namespaceinitializerconfigurations/c": true,
		"/registry/nsinit.dev/nsinit.dev/namespacelifecycles/ns":               true,
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMalformedConfiguration names every field that is wrong, in one answer.
func TestMalformedConfiguration(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	body := []byte(`{"apiVersion":"nsinit.dev/v1alpha1","kind":"NamespaceInitializerConfiguration","metadata":{"name":"bad"},"initializers":[
		{"name":"a.example.com"},{"name":"a.example.com"},{"name":"unqualified"},
		{"name":"b.example.com","failurePolicy":"Ignore","timeoutSeconds":-1},
		{"name":"c.example.com","failurePolicy":"Explode"},{"name":""}]}`)
	err := server.Client(t, "admin").NsinitV1alpha1().RESTClient().Post().Resource("namespaceinitializerconfigurations").Body(body).
		SetHeader("Content-Type", "application/json").Do(context.Background()).Error()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("want it to be invalid, got %v", err)
	}
	got := map[string]metav1.CauseType{}
	for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
		got[cause.Field] = cause.Type
	}
	want := map[string]metav1.CauseType{
		"initializers[1]":                metav1.CauseTypeFieldValueDuplicate,
		"initializers[2].name":           metav1.CauseTypeFieldValueInvalid,
		"initializers[3].timeoutSeconds": metav1.CauseTypeFieldValueInvalid,
		"initializers[4].failurePolicy":  metav1.CauseTypeFieldValueNotSupported,
		"initializers[5].name":           metav1.CauseTypeFieldValueRequired,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, err)
	}
}

// TestDefaults: a policy without a deadline gets one, and nothing else does.
func TestDefaults(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	ignore := v1alpha1.Ignore
	configuration := testserver.Configuration("c", "a.example.com", "b.example.com")
	configuration.Initializers[1].FailurePolicy = &ignore
	stored := server.MustConfigure(t, configuration)
	if stored.Initializers[0].TimeoutSeconds != nil {
		t.Errorf("a deadline without policy: %d", *stored.Initializers[0].TimeoutSeconds)
	}
	if got := stored.Initializers[1].TimeoutSeconds; got == nil || *got != v1alpha1.DefaultTimeoutSeconds {
		t.Errorf("the default deadline is %v", got)
	}
	if stored.Generation != 1 || stored.Status.Phase != v1alpha1.ConfigurationActive {
		t.Errorf("generation %d, phase %q", stored.Generation, stored.Status.Phase)
	}
	stored.Initializers = stored.Initializers[:1]
	stored, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Update(context.Background(), stored, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stored.Generation != 2 {
		t.Errorf("after a change of the initializers the generation is %d", stored.Generation)
	}
}

// TestWatchOwnTurn: a watch on the current initializer begins a turn with ADDED and ends
// it with DELETED.
func TestWatchOwnTurn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	turnOf := func(name string) <-chan watch.Event {
		w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "status.currentInitializer=" + name, ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		return w.ResultChan()
	}
	a, b := turnOf("a.example.com"), turnOf("b.example.com")
	expect := func(who string, events <-chan watch.Event, want watch.EventType) {
		t.Helper()
		if event := <-events; event.Type != want {
			t.Fatalf("%s: got %s, want %s", who, event.Type, want)
		}
	}
	record := server.MustLifecycle(t, "turns")
	expect("a", a, watch.Added)
	record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
	if _, err := client.Initialize(ctx, "turns", record, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("a", a, watch.Deleted)
	expect("b", b, watch.Added)
	if err := client.Delete(ctx, "turns", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("b, after the deletion", b, watch.Deleted)

	if _, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.namespaceUID=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that cannot be selected: %v, want a bad request", err)
	}
}

// TestLegacyWatch serves the watch paths of the namespaces design.
func TestLegacyWatch(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	ctx := t.Context()
	stream, err := server.Client(t, "admin").NsinitV1alpha1().RESTClient().Get().
		AbsPath("/apis/nsinit.dev/v1alpha1/watch/namespaceinitializerconfigurations").SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	var event metav1.WatchEvent
	if err := json.NewDecoder(stream).Decode(&event); err != nil {
		t.Fatal(err)
	}
	if event.Type != string(watch.Added) || !bytes.Contains(event.Object.Raw, []byte(`"name":"c"`)) {
		t.Errorf("%s %s", event.Type, event.Object.Raw)
	}
}

// TestPages lists in pages.
func TestPages(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	for i := range 5 {
		server.MustConfigure(t, testserver.Configuration(fmt.Sprintf("c%d", i), "a.example.com"))
	}
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	var names []string
	options := metav1.ListOptions{Limit: 2}
	for pages := 1; ; pages++ {
		list, err := client.List(context.Background(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if got := strings.Join(names, " "); got != "c0 c1 c2 c3 c4" {
		t.Errorf("listed %s", got)
	}
}

// TestTables prints what kubectl get shows.
func TestTables(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("10-policy", "a.example.com", "b.example.com"))
	server.MustLifecycle(t, "ns")
	table := func(resource string) []string {
		var table metav1.Table
		data, err := server.Client(t, "admin").NsinitV1alpha1().RESTClient().Get().Resource(resource).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &table); err != nil {
			t.Fatal(err)
		}
		var lines []string
		var header []string
		for _, column := range table.ColumnDefinitions {
			header = append(header, column.Name)
		}
		lines = append(lines, strings.Join(header, "|"))
		for _, row := range table.Rows {
			lines = append(lines, fmt.Sprint(row.Cells[:3]))
		}
		return lines
	}
	for resource, want := range map[string][]string{
		"namespacelifecycles": {"Name|Phase|Waiting For|Since|Age|Message|Namespace UID", "[ns Initializing a.example.com (+1)]"},
		"namespaceinitializerconfigurations": {"Name|Phase|Initializers|Served|Pending|Age|Finalizers",
			"[10-policy Active a.example.com,b.example.com]"},
	} {
		if diff := cmp.Diff(want, table(resource)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}

// TestServerSideApply applies a configuration in the shape of the KEP, twice.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
	apply := func(names ...string) *v1alpha1.NamespaceInitializerConfiguration {
		body, err := json.Marshal(map[string]any{
			"apiVersion": "nsinit.dev/v1alpha1", "kind": "NamespaceInitializerConfiguration",
			"metadata": map[string]any{"name": "c"}, "initializers": testserver.Configuration("", names...).Initializers,
		})
		if err != nil {
			t.Fatal(err)
		}
		configuration, err := client.Patch(context.Background(), "c", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "team"})
		if err != nil {
			t.Fatal(err)
		}
		return configuration
	}
	apply("a.example.com", "b.example.com")
	if got := apply("b.example.com").Initializers; len(got) != 1 || got[0].Name != "b.example.com" {
		t.Errorf("initializers are %v", got)
	}
}

// TestDocumentation serves both forms of OpenAPI, with the words that kubectl explain
// prints, and the version that kubectl nsinit version prints.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	client := server.Client(t, "admin").Discovery().RESTClient()
	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/nsinit.dev/v1alpha1"} {
		data, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"initializers tracks the initialization", "pending lists the initializers that have not finished", "x-kubernetes-patch-merge-key",
			`"version":"` + version.Get().GitVersion + `"`} {
			if !bytes.Contains(data, []byte(want)) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
}

// TestAggregatedDiscovery: one request, as kube-apiserver sends it, returns every resource and
// subresource, without authentication and without the storage.
func TestAggregatedDiscovery(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	groups, resources, failed, err := server.Client(t, "admin").Discovery().(discovery.AggregatedDiscoveryInterface).GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 {
		t.Fatal(err, failed)
	}
	if resources == nil {
		t.Fatal("discovery is not aggregated")
	}
	if len(groups.Groups) != 1 || groups.Groups[0].Name != nsinit.GroupName {
		t.Errorf("groups: %+v", groups.Groups)
	}
	var names []string
	for _, resource := range resources[v1alpha1.SchemeGroupVersion].APIResources {
		if resource.Namespaced {
			t.Errorf("%s is namespaced: the deletion of a namespace would ask for its objects", resource.Name)
		}
		names = append(names, resource.Name)
	}
	slices.Sort(names)
	want := []string{
		"accessiblenamespaces", "admissionreviews", "initializerconfigurations", "initializerconfigurations/status", "initializers", "namespaceinitializerconfigurations", "namespaceinitializerconfigurations/finalize", "namespaceinitializerconfigurations/status",
		"namespacelifecycles", "namespacelifecycles/finalize", "namespacelifecycles/initialize", "namespacelifecycles/status",
		"namespacepopulations", "namespacepopulations/status", "populatednamespaces", "populatednamespaces/status",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHandover: a server that has been told to stop ends watches and still answers, is not ready any
// more, and has its clients connect anew.
func TestHandover(t *testing.T) {
	t.Parallel()
	server := testserver.StartWith(t, testserver.Dir(t), testserver.NewCoreAPI(t), func(o *options.Options) { o.Run.ShutdownDelayDuration = 5 * time.Second })
	server.WaitReady(t)
	client, err := rest.HTTPClientFor(server.Config("admin"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.Config("admin").Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	var connections atomic.Int32
	reconnects := func() int32 {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if !info.Reused {
				connections.Add(1)
			}
		}}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, server.Config("admin").Host+"/apis/nsinit.dev/v1alpha1", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusOK {
				t.Errorf("discovery is answered with %s", response.Status)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return connections.Swap(0)
	}
	get("/livez")
	if n := reconnects(); n != 0 {
		t.Errorf("%d connections were made while it runs", n)
	}
	watch, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Stop(t)
	}()
	for range watch.ResultChan() { // until it ends
	}
	eventually(t, "it is not ready", func(context.Context) bool { return get("/readyz").StatusCode != http.StatusOK })
	if n := reconnects(); n == 0 {
		t.Error("clients stay on their connections")
	}
	<-stopped
}

// TestServedAsProtobuf: clients may ask for protobuf.
func TestServedAsProtobuf(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	data, err := server.Client(t, "admin").NsinitV1alpha1().RESTClient().Get().Resource("namespaceinitializerconfigurations").
		SetHeader("Accept", "application/vnd.kubernetes.protobuf").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("k8s\x00")) {
		t.Errorf("the answer begins with %q", data[:min(len(data), 8)])
	}
}

// TestRestart: every acknowledged write exists after a restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := testserver.Dir(t)
	server := testserver.StartIn(t, dir)
	stored := server.MustConfigure(t, testserver.Configuration("c", "a.example.com"))
	server.Stop(t)

	server = testserver.StartIn(t, dir)
	again, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Get(context.Background(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, again); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestStopsClean: a server that was stopped leaves no goroutine behind, although a watch
// was open.
func TestStopsClean(t *testing.T) {
	existing := goleak.IgnoreCurrent()
	server := testserver.Start(t)
	w, err := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles().Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	for range w.ResultChan() { // ends with the server
	}
	server.Core.CloseIdleConnections()
	goleak.VerifyNone(t, existing,
		// Transports of clients are shared by the process and keep connections.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
		// The core API of the test, which outlives the server.
		goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"),
		// A timer of the watch cache, which ends by itself after some seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// The health check for logging runs once for the process and never ends.
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
		// Globals of the libraries, started once for the process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}
