/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// The aggregation layer sends all requests over one connection. If that fails while a server starts or
// stops, so does discovery, and no namespace of the cluster can be deleted.

var errProxyUnknown = errors.New("nsinit-apiserver has just started and has not read the CA certificate of the aggregation layer yet")

// proxyKnown returns a check of whether the server can authenticate requests of the aggregation layer.
// It listens before it has read the CA certificate for that.
func proxyKnown(generic *genericapiserver.Config) func() error {
	return func() error {
		headers := generic.Authentication.RequestHeaderConfig
		if headers != nil && len(headers.CAContentProvider.CurrentCABundleContent()) == 0 {
			return errProxyUnknown
		}
		return nil
	}
}

// withKnownProxy answers 503 until clients can be authenticated. Otherwise, the answer would be 403, on
// which clients do not retry. It closes the connection, whose TLS handshake did not use that CA.
func withKnownProxy(handler http.Handler, known func() error, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if err := known(); err != nil && !isHealthCheck(request) {
			w.Header().Set("Connection", "close")
			responsewriters.ErrorNegotiated(utilapierrors.NewUnavailable(err), codecs, v1alpha1.SchemeGroupVersion, w, request)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

func isHealthCheck(request *http.Request) bool {
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if request.URL.Path == path || strings.HasPrefix(request.URL.Path, path+"/") {
			return true
		}
	}
	return false
}

// withHandover makes clients reconnect after the server was asked to stop and before it stops
// answering. For the header, Go's HTTP/2 server sends a GOAWAY. Watches end, too: with HTTP/1.1,
// kube-apiserver sends its next request over the connection of a watch that has ended, and a
// write would fail if the server closed the connection at that time.
func withHandover(handler http.Handler, stopping <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-stopping:
			w.Header().Set("Connection", "close")
		default:
			request = request.WithContext(apirequest.WithServerShutdownSignal(request.Context(), handover(stopping)))
		}
		handler.ServeHTTP(w, request)
	})
}

// handover ends watches.
type handover <-chan struct{}

func (h handover) ShuttingDown() <-chan struct{} { return h }
