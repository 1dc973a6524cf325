/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitscheme "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
)

// TestTransport: what a request is, and what its answer means.
func TestTransport(t *testing.T) {
	tests := map[string]struct {
		method, path, request string
		code                  int
		answer                string
		broken                bool // the connection ends within the answer
		want                  *Operation
	}{
		"an acknowledged creation": {
			method: http.MethodPost, path: "/api/v1/namespaces", request: `{"metadata":{"name":"a"}}`,
			code: 201, answer: `{"kind":"Namespace","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`,
			want: &Operation{Verb: "create", Resource: "namespaces", Name: "a", Outcome: Acknowledged, UID: "u", ResourceVersion: 7},
		},
		"a write into a namespace": {
			method: http.MethodPatch, path: "/api/v1/namespaces/a/configmaps/x", request: `{}`, code: 403, answer: `{"kind":"Status","message":"closed"}`,
			want: &Operation{Verb: "patch", Resource: "configmaps", Namespace: "a", Name: "x", Outcome: Refused, Message: "closed"},
		},
		"a deletion": {
			method: http.MethodDelete, path: "/api/v1/namespaces/a/configmaps/x", code: 200, answer: `{"kind":"Status","details":{"uid":"u"}}`,
			want: &Operation{Verb: "delete", Resource: "configmaps", Namespace: "a", Name: "x", Outcome: Acknowledged, UID: "u"},
		},
		"a subresource": {
			method: http.MethodPut, path: "/apis/nsinit.dev/v1alpha1/namespacelifecycles/a/initialize", request: `{}`, code: 409, answer: `{}`,
			want: &Operation{Verb: "update", Group: "nsinit.dev", Resource: "namespacelifecycles", Subresource: "initialize", Name: "a", Outcome: Refused},
		},
		"a server that failed may have written": {
			method: http.MethodPut, path: "/apis/nsinit.dev/v1alpha1/namespacelifecycles/a/initialize", request: `{}`, code: 503, answer: `{}`,
			want: &Operation{Verb: "update", Group: "nsinit.dev", Resource: "namespacelifecycles", Subresource: "initialize", Name: "a", Outcome: Unknown},
		},
		"half an answer": {
			method: http.MethodPost, path: "/api/v1/namespaces", request: `{}`, code: 201, answer: `{"kind":`, broken: true,
			want: &Operation{Verb: "create", Resource: "namespaces", Outcome: Unknown},
		},
		"a read of nsinit": {
			method: http.MethodGet, path: "/apis/nsinit.dev/v1alpha1/namespacelifecycles/a", code: 200, answer: `{"metadata":{"resourceVersion":"9"}}`,
			want: &Operation{Verb: "get", Group: "nsinit.dev", Resource: "namespacelifecycles", Name: "a", Outcome: Acknowledged, ResourceVersion: 9},
		},
		"another read": {method: http.MethodGet, path: "/api/v1/namespaces/a", code: 200, answer: `{}`},
		"a list":       {method: http.MethodGet, path: "/apis/nsinit.dev/v1alpha1/namespacelifecycles", code: 200, answer: `{}`},
		"a dry run":    {method: http.MethodPost, path: "/api/v1/namespaces?dryRun=All", request: `{}`, code: 201, answer: `{}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.broken {
					w.Header().Set("Content-Length", "1000")
				}
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()
			r := NewRecorder()
			client, err := rest.HTTPClientFor(r.Record(&rest.Config{Host: server.URL}, "alice", RoleTenant))
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(WithNamespace(t.Context(), "incarnation"), test.method, server.URL+test.path, strings.NewReader(test.request))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			if string(answer) != test.answer || (err != nil) != test.broken {
				t.Errorf("the client reads %q, %v", answer, err)
			}
			operations := r.History().Operations
			if test.want == nil {
				if len(operations) > 0 {
					t.Errorf("it was recorded: %+v", operations)
				}
				return
			}
			if len(operations) != 1 {
				t.Fatalf("%d operations", len(operations))
			}
			got := operations[0]
			if got.Client != "alice" || got.Role != RoleTenant || got.NamespaceUID != "incarnation" || got.Start > got.End {
				t.Errorf("%+v", got)
			}
			want := *test.want
			for _, pair := range [][2]any{
				{got.Verb, want.Verb}, {got.Group, want.Group}, {got.Resource, want.Resource}, {got.Subresource, want.Subresource}, {got.Namespace, want.Namespace},
				{got.Name, want.Name}, {got.Outcome, want.Outcome}, {got.UID, want.UID}, {got.ResourceVersion, want.ResourceVersion},
			} {
				if pair[0] != pair[1] {
					t.Errorf("got %v, want %v in %+v", pair[0], pair[1], got)
				}
			}
		})
	}
}

// TestFollow: the changes of a real etcd are recorded in its order, with what was deleted, and go on when
// the store is replaced by an empty one.
func TestFollow(t *testing.T) {
	store := startEtcd(t)
	put(t, store.client, Kube, "/registry/namespaces/before", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "before", UID: "u0"}})
	r := NewRecorder()
	follow(t, r, Kube, store)
	if _, err := r.CatchUp(t.Context(), Kube, store.client); err != nil {
		t.Fatal(err)
	}
	put(t, store.client, Kube, "/registry/namespaces/a", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u1"}})
	put(t, store.client, Kube, "/registry/namespaces/a", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u1"}}) // changes nothing
	put(t, store.client, Kube, "/registry/configmaps/a/x", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a", UID: "u2"}})
	put(t, store.client, Kube, "/registry/nodes/n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}) // not in a namespace
	if _, err := store.client.Delete(t.Context(), "/registry/configmaps/a/x"); err != nil {
		t.Fatal(err)
	}
	revision, err := r.CatchUp(t.Context(), Kube, store.client)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r.History().Events, []string{"Namespace before initial", "Namespace a created", "ConfigMap x created", "ConfigMap x deleted"})
	if last := r.History().Events[3]; last.Revision != revision {
		t.Errorf("the last event has revision %d, the store %d", last.Revision, revision)
	}
}

// TestWork: of pods and Jobs, only what decides whether they wait or run is recorded.
func TestWork(t *testing.T) {
	const metadata = `"metadata": {"namespace": "a", "name": "x", "uid": "u", "labels": {"initializers.nsinit.dev/one": "0"}, "ownerReferences": [{"uid": "job"}]}`
	pod, _ := decode(Kube, []byte(`{"apiVersion": "v1", "kind": "Pod", `+metadata+`,
		"spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}], "containers": [{"name": "c"}]}, "status": {"phase": "Pending"}}`))
	if p := pod.Pod; p == nil || p.Spec.NodeName != "n" || len(p.Spec.SchedulingGates) != 1 || p.Status.Phase != corev1.PodPending || len(p.OwnerReferences) != 1 || len(p.Spec.Containers) > 0 {
		t.Errorf("the pod: %+v", pod)
	}
	job, _ := decode(Kube, []byte(`{"apiVersion": "batch/v1", "kind": "Job", `+metadata+`,
		"spec": {"suspend": true, "parallelism": 1}, "status": {"startTime": "2026-01-01T00:00:00Z"}}`))
	if j := job.Job; j == nil || !*j.Spec.Suspend || j.Labels["initializers.nsinit.dev/one"] != "0" || j.Status.StartTime == nil || j.Spec.Parallelism != nil {
		t.Errorf("the Job: %+v", job)
	}
	registration, _ := decode(Nsinit, []byte(`{"apiVersion": "nsinit.dev/v1alpha1", "kind": "InitializerConfiguration", "metadata": {"name": "x"}, "initializers": [{"name": "one"}]}`))
	if r := registration.Registration; r == nil || len(r.Initializers) != 1 {
		t.Errorf("the configuration: %+v", registration)
	}
}

// TestReplaced: after a store was replaced by an empty one, the history goes on with its first revision, and after a snapshot was restored,
// with its keys.
func TestReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many seconds")
	}
	store := startEtcd(t)
	r := NewRecorder()
	follow(t, r, Nsinit, store)
	put(t, store.client, Nsinit, "/registry/nsinit.dev/namespacelifecycles/a", &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}})
	var snapshot bytes.Buffer
	if _, err := embeddedetcd.Save(t.Context(), store.dir, &snapshot); err != nil {
		t.Fatal(err)
	}
	put(t, store.client, Nsinit, "/registry/nsinit.dev/namespacelifecycles/later", &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "later", UID: "u"}})
	if _, err := r.CatchUp(t.Context(), Nsinit, store.client); err != nil {
		t.Fatal(err)
	}
	store.server.Stop()
	if err := os.RemoveAll(store.dir); err != nil {
		t.Fatal(err)
	}
	r.Replaced(Nsinit, true)
	if err := embeddedetcd.Restore(store.dir, &snapshot); err != nil {
		t.Fatal(err)
	}
	store.start(t)
	if _, err := r.CatchUp(t.Context(), Nsinit, store.client); err != nil {
		t.Fatal(err)
	}
	store.server.Stop()
	if err := os.RemoveAll(store.dir); err != nil {
		t.Fatal(err)
	}
	r.Replaced(Nsinit, false)
	store.start(t)
	put(t, store.client, Nsinit, "/registry/nsinit.dev/namespacelifecycles/b", &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u"}})
	if _, err := store.client.Put(t.Context(), "/registry/nsinit.dev/namespacelifecycles/c", "garbage"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CatchUp(t.Context(), Nsinit, store.client); err != nil {
		t.Fatal(err)
	}
	events := r.History().Events
	expect(t, events, []string{"NamespaceLifecycle a created", "NamespaceLifecycle later created", "NamespaceLifecycle a initial", "NamespaceLifecycle b created", "undecodable created"})
	for i, epoch := range []int{0, 0, 1, 2, 2} {
		if events[i].Epoch != epoch {
			t.Errorf("event %d has epoch %d", i, events[i].Epoch)
		}
	}
}

// TestCompacted: changes that were lost are an error, not a history with a gap.
func TestCompacted(t *testing.T) {
	store := startEtcd(t)
	for range 5 {
		if _, err := store.client.Put(t.Context(), "/key", "value"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.client.Compact(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder()
	next := int64(2)
	if err := r.watch(t.Context(), Kube, store.client, &next); err == nil {
		t.Error("the watch did not notice")
	}
}

type testEtcd struct {
	dir    string
	server *embeddedetcd.Server
	client *clientv3.Client
}

func startEtcd(t *testing.T) *testEtcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	s := &testEtcd{dir: dir + "/e"}
	s.start(t)
	endpoint, err := embeddedetcd.Endpoint(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.client.Close()
		s.server.Stop()
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *testEtcd) start(t *testing.T) {
	t.Helper()
	var err error
	if s.server, err = embeddedetcd.Start(context.Background(), s.dir, 0); err != nil {
		t.Fatal(err)
	}
}

func follow(t *testing.T, r *Recorder, store Store, etcd *testEtcd) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Follow(ctx, store, etcd.client) }()
	t.Cleanup(func() { cancel(); <-done })
	if _, err := r.CatchUp(t.Context(), store, etcd.client); err != nil {
		t.Fatal(err)
	}
}

// put stores an object as an API server does.
func put(t *testing.T, client *clientv3.Client, store Store, key string, object runtime.Object) {
	t.Helper()
	s, version := scheme.Scheme, corev1.SchemeGroupVersion
	if store == Nsinit {
		s, version = nsinitscheme.Scheme, v1alpha1.SchemeGroupVersion
	}
	codecs := scheme.Codecs
	if store == Nsinit {
		codecs = nsinitscheme.Codecs
	}
	data, err := runtime.Encode(codecs.EncoderForVersion(protobuf.NewSerializer(s, s), version), object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), key, string(data)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, events []Event, want []string) {
	t.Helper()
	var got []string
	for _, event := range events {
		text := "undecodable"
		if event.Object != nil {
			text = event.Object.Kind + " " + event.Object.Name
		}
		switch {
		case event.Initial:
			text += " initial"
		case event.Deleted:
			text += " deleted"
		case event.Created:
			text += " created"
		}
		got = append(got, text)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}
