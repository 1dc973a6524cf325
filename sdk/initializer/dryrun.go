/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// DryRunConfig returns a configuration whose clients store nothing: each write has dryRun=All, so the server checks and
// answers it, and does not store it.
func DryRunConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRun{next} })
	return config
}

type dryRun struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dryRun) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return d.next.RoundTrip(request)
	}
	request = request.Clone(request.Context())
	query := request.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	request.URL.RawQuery = query.Encode()
	return d.next.RoundTrip(request)
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (d dryRun) WrappedRoundTripper() http.RoundTripper { return d.next }
