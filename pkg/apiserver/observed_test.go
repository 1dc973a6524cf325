/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAuditAnnotations: the audit log shows which initializer or participant a request removed, and which
// initializer failed. Dry runs, refused requests and other changes have no annotations.
func TestAuditAnnotations(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	log := filepath.Join(t.TempDir(), "audit.log")
	server := testserver.StartWith(t, testserver.Dir(t), testserver.NewCoreAPI(t), func(o *options.Options) {
		o.Recommended.Audit.PolicyFile = written(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [update]}]\n")
		o.Recommended.Audit.LogOptions.Path = log
	})
	server.WaitReady(t)
	server.MustConfigure(t, testserver.Configuration("c", "a.example.com", "b.example.com"))
	client := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	record := server.MustLifecycle(t, "shop")

	update := func(change func(*v1alpha1.NamespaceLifecycle), options metav1.UpdateOptions, send func(context.Context, string, *v1alpha1.NamespaceLifecycle, metav1.UpdateOptions) (*v1alpha1.NamespaceLifecycle, error)) error {
		t.Helper()
		var err error
		if record, err = client.Get(ctx, "shop", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		change(record)
		_, err = send(ctx, "shop", record, options)
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	removeFirst := func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Initializers.Pending = r.Spec.Initializers.Pending[1:]
	}
	must(update(removeFirst, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, client.Initialize))
	must(update(func(*v1alpha1.NamespaceLifecycle) {}, metav1.UpdateOptions{}, client.Initialize))
	for current := ""; current != "b.example.com"; { // the first entry is nsinit's own
		must(update(removeFirst, metav1.UpdateOptions{}, client.Initialize))
		current = record.Spec.Initializers.Pending[0].Name
	}
	must(update(func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no"}
	}, metav1.UpdateOptions{}, client.Initialize))
	must(client.Delete(ctx, "shop", metav1.DeleteOptions{}))
	if err := update(func(r *v1alpha1.NamespaceLifecycle) { r.ResourceVersion, r.Spec.Finalizers = "1", nil }, metav1.UpdateOptions{}, client.Finalize); !apierrors.IsConflict(err) {
		t.Fatalf("a stale write: %v", err)
	}
	must(update(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = nil }, metav1.UpdateOptions{}, client.Finalize))
	server.Stop(t)

	data, err := os.ReadFile(log)
	must(err)
	var got []map[string]string
	for line := range bytes.Lines(data) {
		var event auditv1.Event
		must(json.Unmarshal(line, &event))
		told := map[string]string{}
		for _, key := range []string{v1alpha1.AuditRemovedInitializers, v1alpha1.AuditFailedInitializer, v1alpha1.AuditRemovedFinalizers} {
			if value, found := event.Annotations[key]; found {
				told[key] = value
			}
		}
		if len(told) > 0 {
			got = append(got, told)
		}
	}
	want := []map[string]string{
		{v1alpha1.AuditRemovedInitializers: "a.example.com"},
		{v1alpha1.AuditFailedInitializer: "b.example.com"},
		{v1alpha1.AuditRemovedFinalizers: "kubernetes"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, data)
	}
}

// collector takes spans, as an OpenTelemetry collector does.
type collector struct {
	tracev1.UnimplementedTraceServiceServer
	names chan string
}

// Export implements tracev1.TraceServiceServer.
func (c *collector) Export(_ context.Context, request *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				select {
				case c.names <- span.Name:
				default: // enough
				}
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// TestTracing: with --tracing-config-file, a collector gets the spans of requests.
func TestTracing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spans, server := &collector{names: make(chan string, 10000)}, grpc.NewServer()
	tracev1.RegisterTraceServiceServer(server, spans)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	s := testserver.StartWith(t, testserver.Dir(t), testserver.NewCoreAPI(t), func(o *options.Options) {
		o.Recommended.Traces.ConfigFile = written(t, "tracing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+listener.Addr().String()+"\nsamplingRatePerMillion: 1000000\n")
	})
	s.WaitReady(t)
	if _, err := s.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	late := time.After(30 * time.Second)
	// That of a request, and those of what is inside. They arrive in any order.
	missing := sets.New("GET /apis/nsinit.dev/v1alpha1/namespaceinitializerconfigurations", "authorization", "SerializeObject")
	for missing.Len() > 0 {
		select {
		case name := <-spans.names:
			missing.Delete(name)
		case <-late:
			t.Fatalf("there are no spans %q", sets.List(missing))
		}
	}
}

// TestProfiling: profiles are for those who may read them.
func TestProfiling(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	get := func(user string) error {
		return s.Client(t, user).Discovery().RESTClient().Get().AbsPath("/debug/pprof/heap").Do(context.Background()).Error()
	}
	if err := get("admin"); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	if err := get("stranger"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without permissions: %v", err)
	}
}
