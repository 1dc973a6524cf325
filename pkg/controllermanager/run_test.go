/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// TestTryOnce: a response with Retry-After is returned without a retry, with its reason.
func TestTryOnce(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"no list"}`))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(tryOnce)
	_, err := versioned.NewForConfigOrDie(config).NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), "ns", metav1.GetOptions{})
	if !apierrors.IsServiceUnavailable(err) || err.Error() != "no list" || requests.Load() != 1 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}
