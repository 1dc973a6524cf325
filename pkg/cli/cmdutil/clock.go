/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ServerClock is the clock of kube-apiserver, as its last response shows. Until the first one, it is that of this machine.
type ServerClock struct {
	local clock.PassiveClock
	// ahead is by how many nanoseconds it is ahead of the local one.
	ahead atomic.Int64
}

// NewServerClock returns a clock that is ahead of the local one by a duration, until a response shows by how much it is.
func NewServerClock(local clock.PassiveClock, ahead time.Duration) *ServerClock {
	c := &ServerClock{local: local}
	c.ahead.Store(int64(ahead))
	return c
}

// Now implements clock.PassiveClock.
func (c *ServerClock) Now() time.Time { return c.local.Now().Add(time.Duration(c.ahead.Load())) }

// Since implements clock.PassiveClock.
func (c *ServerClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// wrap reads the time from responses.
func (c *ServerClock) wrap(next http.RoundTripper) http.RoundTripper { return timedTransport{next, c} }

type timedTransport struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip implements http.RoundTripper.
func (t timedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.clock.ahead.Store(int64(date.Sub(t.clock.local.Now())))
	}
	return response, nil
}
