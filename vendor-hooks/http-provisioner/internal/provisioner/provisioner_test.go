/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// recorder answers requests, and remembers them.
type recorder struct {
	*httptest.Server
	answers []func(w http.ResponseWriter)
	got     []string
}

func status(code int, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func record(t *testing.T, answers ...func(http.ResponseWriter)) *recorder {
	t.Helper()
	r := &recorder{answers: answers}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.got = append(r.got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", request.Method, request.RequestURI, request.Header.Get("Authorization"), body)))
		if len(r.answers) == 0 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		answer := r.answers[0]
		r.answers = r.answers[1:]
		answer(w)
	}))
	t.Cleanup(r.Close)
	return r
}

func namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{"path": "../a b?c=d&e#f/%2F+"},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"}}}
}

// of returns a Provisioner with a configuration, whose server and Secret are the recorder's.
func of(t *testing.T, r *recorder, secret map[string]string, text string) (*Provisioner, *fake.Clientset) {
	t.Helper()
	loaded, err := Load([]byte("apiVersion: http-provisioner.nsinit.dev/v1alpha1\nkind: HTTPProvisioner\ninitializer: a.example.com\nserver: {url: " + r.URL +
		"/base/, secret: {namespace: credentials, name: s}}\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{keyCA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})}
	for key, value := range secret {
		data[key] = []byte(value)
	}
	core := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "credentials", Name: "s", ResourceVersion: "1"}, Data: data})
	return New(loaded, core, clock.RealClock{}), core
}

func TestRequests(t *testing.T) {
	for name, test := range map[string]struct {
		secret  map[string]string
		config  string
		answers []func(http.ResponseWriter)
		want    []string
		err     string
	}{
		"a body, and basic authentication": {
			map[string]string{"username": "u", "password": "p"}, `provision: {method: PUT, path: "/x/${namespaceObject.metadata.name}", body: {a: ["${creator}", 1]}}`,
			[]func(http.ResponseWriter){status(201, "")}, []string{`PUT /base/x/shop Basic dTpw {"a":["alice",1]}`}, "",
		},
		"a token": {
			map[string]string{"token": "t\n", "username": "u"}, `provision: {method: POST}`,
			[]func(http.ResponseWriter){status(200, "")}, []string{"POST /base Bearer t"}, "",
		},
		"another header": {
			map[string]string{"token": "t"}, `provision: {method: POST, headers: {Authorization: "Key ${namespaceObject.metadata.uid}"}}`,
			[]func(http.ResponseWriter){status(200, "")}, []string{"POST /base Key u"}, "",
		},
		"what leads elsewhere is escaped": {
			nil, `provision: {method: PUT, path: "/x/${namespaceObject.metadata.labels['path']}/y?q=${namespaceObject.metadata.labels['path']}"}`,
			[]func(http.ResponseWriter){status(200, "")}, []string{"PUT /base/x/..%2Fa%20b%3Fc%3Dd%26e%23f%2F%252F%2B/y?q=..%2Fa%20b%3Fc%3Dd%26e%23f%2F%252F%2B"}, "",
		},
		"an empty value, which leads elsewhere": {
			nil, `provision: {method: DELETE, path: "/x/${''}"}`, nil, nil, "an expression without a value",
		},
		"an empty value in a query": {
			nil, `provision: {method: PUT, path: "/x?q=${''}&r=1"}`, []func(http.ResponseWriter){status(200, "")}, []string{"PUT /base/x?q=&r=1"}, "",
		},
		"or refused": {
			nil, `provision: {method: PUT, path: "/x/${'.'}${'.'}/y"}`, nil, nil, "can lead to another path",
		},
		"a refusal": {
			nil, `provision: {method: PUT}`, []func(http.ResponseWriter){status(409, "taken\n  by another team")}, []string{"PUT /base"}, "unexpected response 409 Conflict: taken by another team",
		},
		"an answer that is expected": {
			nil, `provision: {method: PUT, expect: 'response.status == 409 && response.body.type == "exists" && response.headers["x-a"] == "b"'}`,
			[]func(http.ResponseWriter){status(409, `{"type":"exists"}`, "X-A", "b")}, []string{"PUT /base"}, "",
		},
		"an expectation that cannot be evaluated": {
			nil, `provision: {method: PUT, expect: response.body.ok}`, []func(http.ResponseWriter){status(200, `no JSON`)}, []string{"PUT /base"}, "cannot evaluate expect for the response",
		},
		"a redirection": {
			nil, `provision: {method: PUT}`, []func(http.ResponseWriter){status(302, "", "Location", "https://evil.example.com")}, []string{"PUT /base"}, "302 Found",
		},
		"an answer that is too long": {
			nil, `provision: {method: PUT}`, []func(http.ResponseWriter){status(200, strings.Repeat("x", maxAnswer+1))}, []string{"PUT /base"}, "longer than",
		},
		"an operation that goes on": {
			nil, `provision: {method: POST, poll: {method: GET, location: "${operation.headers.location}", until: "response.body.done", interval: 1ms}}`,
			[]func(http.ResponseWriter){status(202, "", "Location", "/ops/1?x=y"), status(200, `{"done":false}`), status(200, `{"done":true}`)},
			[]string{"POST /base", "GET /ops/1?x=y", "GET /ops/1?x=y"}, "",
		},
		"by a path": {
			nil, `provision: {method: POST, poll: {method: GET, path: "/ops/${operation.body.id}", until: "response.body.done", interval: 1ms}}`,
			[]func(http.ResponseWriter){status(202, `{"id":"a/b"}`), status(200, `{"done":true}`)}, []string{"POST /base", "GET /base/ops/a%2Fb"}, "",
		},
		"on another server": {
			map[string]string{"token": "t"}, `provision: {method: POST, poll: {method: GET, location: "${operation.headers.location}", until: "true"}}`,
			[]func(http.ResponseWriter){status(202, "", "Location", "https://evil.example.com/")}, []string{"POST /base Bearer t"}, "is on another server",
		},
		"that fails": {
			nil, `provision: {method: POST, poll: {method: GET, path: /op, until: "response.body.done", interval: 1ms}}`,
			[]func(http.ResponseWriter){status(202, ""), status(200, `{"done":false}`), status(500, "broken")}, []string{"POST /base", "GET /base/op", "GET /base/op"}, "500 Internal Server Error: broken",
		},
		"that does not end": {
			nil, `provision: {method: POST, poll: {method: GET, path: /op, until: "false", interval: 1ms, timeout: 1ns}}`,
			[]func(http.ResponseWriter){status(202, ""), status(200, "")}, []string{"POST /base", "GET /base/op"}, "did not complete within 1ns",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, test.answers...)
			p, _ := of(t, r, test.secret, test.config)
			err := p.Initialize(t.Context(), namespace())
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, r.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRetryAfter: a server says when to try again, in seconds or as a time of its clock.
func TestRetryAfter(t *testing.T) {
	for name, test := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"seconds":     {[]string{"Retry-After", "7"}, 7 * time.Second},
		"a time":      {[]string{"Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT", "Date", "Wed, 21 Oct 2015 07:28:00 GMT"}, 30 * time.Second},
		"much later":  {[]string{"Retry-After", "86400"}, longestDelay},
		"in the past": {[]string{"Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT", "Date", "Wed, 21 Oct 2015 07:28:30 GMT"}, 0},
		"nonsense":    {[]string{"Retry-After", "soon"}, 0},
		"nothing":     {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := of(t, record(t, status(503, "", test.headers...)), nil, `provision: {method: PUT}`)
			err := p.Initialize(t.Context(), namespace())
			var later interface{ RetryAfter() time.Duration }
			got := time.Duration(0)
			if errors.As(err, &later) {
				got = later.RetryAfter()
			}
			if err == nil || got != test.want {
				t.Errorf("%v, after %s, want %s", err, got, test.want)
			}
		})
	}
}

// TestFinalize: what is gone already is as good as taken away.
func TestFinalize(t *testing.T) {
	const text = `
provision: {method: PUT}
deprovision: {method: DELETE, path: "/${namespaceObject.metadata.uid}"}
`
	for code, good := range map[int]bool{200: true, 204: true, 404: true, 500: false, 401: false} {
		r := record(t, status(code, ""))
		p, _ := of(t, r, nil, text)
		if err := p.Finalize(t.Context(), namespace()); (err == nil) != good {
			t.Errorf("%d: %v", code, err)
		}
		if diff := cmp.Diff([]string{"DELETE /base/u"}, r.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestPublish: what the answer says is put into the namespace.
func TestPublish(t *testing.T) {
	p, core := of(t, record(t, status(200, `{"token":"secret","n":7}`)), nil, `
provision: {method: PUT}
publish:
- {kind: ConfigMap, name: c, data: {number: "${response.body.n} of ${creator}"}}
- {kind: Secret, name: s, data: {token: "${response.body.token}"}}
`)
	if err := p.Initialize(t.Context(), namespace()); err != nil {
		t.Fatal(err)
	}
	configMap, err := core.CoreV1().ConfigMaps("shop").Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil || configMap.Data["number"] != "7 of alice" {
		t.Errorf("%+v, %v", configMap, err)
	}
	secret, err := core.CoreV1().Secrets("shop").Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || string(secret.Data["token"]) != "secret" {
		t.Errorf("%+v, %v", secret, err)
	}
}

// TestSecretChanges: the next request goes by what the Secret holds then.
func TestSecretChanges(t *testing.T) {
	r := record(t, status(200, ""), status(200, ""))
	p, core := of(t, r, map[string]string{"token": "old"}, `provision: {method: PUT}`)
	if err := p.Initialize(t.Context(), namespace()); err != nil {
		t.Fatal(err)
	}
	set := func(key, value, version string) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "data": map[string][]byte{key: []byte(value)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := core.CoreV1().Secrets("credentials").Patch(t.Context(), "s", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set("token", "new", "2")
	if err := p.Initialize(t.Context(), namespace()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PUT /base Bearer old", "PUT /base Bearer new"}, r.got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	set(keyCA, "no certificate", "3")
	if err := p.Initialize(t.Context(), namespace()); err == nil || !strings.Contains(err.Error(), "the Secret credentials/s is not valid: unable to load root certificates") {
		t.Errorf("a broken certificate: %v", err)
	}
	set(keyCA, "", "4")
	if err := p.Initialize(t.Context(), namespace()); err == nil || !strings.Contains(err.Error(), "ca.crt is empty") {
		t.Errorf("an empty certificate: %v", err)
	}
	if _, err := newTransport(map[string][]byte{corev1.TLSCertKey: []byte("x")}); err == nil || !strings.Contains(err.Error(), "both or none") {
		t.Errorf("a certificate without a key: %v", err)
	}
	// Without it, the server is not trusted.
	untrusted, _ := of(t, record(t), nil, `provision: {method: PUT}`)
	untrusted.config.Server.Secret = nil
	if err := untrusted.Initialize(t.Context(), namespace()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown CA: %v", err)
	}
}
