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
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// The aggregation layer keeps one connection for all its requests, so what a server does in
// its first and its last moments decides over discovery, and while discovery fails no
// namespace of the cluster goes away.

// errProxyUnknown is why a server that has just started cannot tell who is calling.
var errProxyUnknown = errors.New("nsinit-apiserver has just started and does not know yet which CA signs the certificate of the aggregation layer")

// proxyKnown returns whether a server can tell requests of the aggregation layer from those of
// others. It listens before it has read the CA that signs their certificate.
func proxyKnown(generic *genericapiserver.Config) func() error {
	return func() error {
		headers := generic.Authentication.RequestHeaderConfig
		if headers != nil && len(headers.CAContentProvider.CurrentCABundleContent()) == 0 {
			return errProxyUnknown
		}
		return nil
	}
}

// withKnownProxy answers 503 for as long as nobody could be authenticated, where the answer
// would be 403, which clients take for final. The connection is given up: what it was
// encrypted with was chosen without that CA.
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

// withHandover has clients connect anew once the server has been told to stop, while it still
// answers, so that they have left before it does not any more. Go's HTTP/2 server sends a
// GOAWAY for the header.
func withHandover(handler http.Handler, stopping <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-stopping:
			w.Header().Set("Connection", "close")
		default:
		}
		handler.ServeHTTP(w, request)
	})
}
