/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
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
// answering. For the header, Go's HTTP/2 server sends a GOAWAY.
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

// patience is how much longer than the client an idle connection is kept. kube-apiserver and the server of k8s.io/apiserver both close
// one after 90 s. With HTTP/1.1, a write that is sent while the server closes the connection fails.
const patience = 15 * time.Second

// patientListener accepts connections whose deadlines for reading, among them that of idle connections, are later.
type patientListener struct{ net.Listener }

func (l patientListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return patientConn{connection}, nil
}

type patientConn struct{ net.Conn }

func (c patientConn) SetReadDeadline(t time.Time) error {
	if time.Until(t) > 0 { // an earlier one interrupts a read
		t = t.Add(patience)
	}
	return c.Conn.SetReadDeadline(t)
}
