/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
)

// lateAuthority is one that is read later.
type lateAuthority struct {
	dynamiccertificates.CAContentProvider
	content []byte
}

func (a *lateAuthority) CurrentCABundleContent() []byte { return a.content }

// TestKnownProxy: a server that cannot authenticate clients yet answers with an error that clients retry,
// and reports its health.
func TestKnownProxy(t *testing.T) {
	codecs := serializer.NewCodecFactory(scheme.New())
	ca := &lateAuthority{}
	generic := &genericapiserver.Config{}
	handler := withKnownProxy(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), proxyKnown(generic), codecs)
	get := func(path string) *http.Response {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Result()
	}
	const path = "/apis/nsinit.dev/v1alpha1"
	if response := get(path); response.StatusCode != http.StatusOK {
		t.Errorf("without an aggregation layer: %s", response.Status)
	}
	generic.Authentication.RequestHeaderConfig = &authenticatorfactory.RequestHeaderConfig{CAContentProvider: ca}
	if response := get(path); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || response.Header.Get("Connection") != "close" {
		t.Errorf("before it knows: %s %v", response.Status, response.Header)
	}
	for _, path := range []string{"/livez", "/readyz", "/readyz/etcd", "/healthz"} {
		if response := get(path); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	if response := get("/readyzz"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("what looks like a health check: %s", response.Status)
	}
	ca.content = []byte("a certificate")
	if response := get(path); response.StatusCode != http.StatusOK || response.Header.Get("Connection") != "" {
		t.Errorf("once it knows: %s %v", response.Status, response.Header)
	}
}
