/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import "net/http"

// tryOnce removes the header Retry-After from responses, so that the client does not retry. The queue
// retries with a growing delay. Meanwhile no worker waits, and the conditions of the namespace have the
// reason.
func tryOnce(next http.RoundTripper) http.RoundTripper { return &once{next} }

type once struct{ next http.RoundTripper }

var _ interface {
	http.RoundTripper
	// The client uses this to close idle connections.
	WrappedRoundTripper() http.RoundTripper
} = (*once)(nil)

// RoundTrip implements http.RoundTripper.
func (o *once) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if response != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns the wrapped round tripper.
func (o *once) WrappedRoundTripper() http.RoundTripper { return o.next }
