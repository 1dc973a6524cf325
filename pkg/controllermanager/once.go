/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import "net/http"

// tryOnce takes the header Retry-After from answers, so that the client does not wait inside
// a call and try again ten times. The queue tries again, with a delay that grows, and
// meanwhile the reason stands in the namespace's conditions and no worker waits.
func tryOnce(next http.RoundTripper) http.RoundTripper { return &once{next} }

type once struct{ next http.RoundTripper }

var _ interface {
	http.RoundTripper
	// The client closes idle connections through this.
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

// WrappedRoundTripper returns what this one wraps.
func (o *once) WrappedRoundTripper() http.RoundTripper { return o.next }
