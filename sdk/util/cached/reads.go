/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cached

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Reads are reads that callers share. At most one is running. A caller gets the result of a read that began after its call.
type Reads[T any] struct {
	// What is what is read, as errors name it.
	What string
	// Read reads once. It returns when its context ends, which no caller's context ends.
	Read  func(ctx context.Context) (T, error)
	Clock clock.PassiveClock
	// Ended is called after each read for which a caller waited until it ended. It may be nil.
	Ended func(ctx context.Context, took time.Duration, result T, err error)

	mu sync.Mutex
	// running is the read in flight, or nil. Its result is for the callers that arrived before it began.
	running *read[T]
	// next is the read that begins after it, or nil. It is for the callers that arrived since.
	next *read[T]
}

// read is one read, and what its callers wait for.
type read[T any] struct {
	// callers is the number of callers that wait. Reads.mu protects it.
	callers int
	// cancel ends a read that is running.
	cancel context.CancelFunc
	// done is closed when the result is set.
	done   chan struct{}
	result T
	err    error
}

// errAbandoned is the cause of the end of a read whose last caller has left.
var errAbandoned = errors.New("no request waits for the result")

// Do returns the result of a read that begins after the call. The error is that of the read, or the cause of the end of ctx.
func (r *Reads[T]) Do(ctx context.Context) (T, error) {
	read := r.join()
	select {
	case <-read.done:
		return read.result, read.err
	case <-ctx.Done():
		r.leave(read)
		var none T
		return none, fmt.Errorf("cannot wait for %s: %w", r.What, context.Cause(ctx))
	}
}

// join adds a caller to the next read, which begins immediately unless another one is running.
func (r *Reads[T]) join() *read[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &read[T]{done: make(chan struct{})}
	}
	joined := r.next
	joined.callers++
	if r.running == nil {
		r.begin()
	}
	return joined
}

// leave removes a caller. A read without callers ends early, or never begins.
func (r *Reads[T]) leave(left *read[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left.callers--
	switch {
	case left.callers > 0:
	case left == r.next:
		r.next = nil
	case left == r.running:
		left.cancel()
	}
}

// begin begins the next read, if callers wait for it. The caller holds the lock.
func (r *Reads[T]) begin() {
	r.running, r.next = r.next, nil
	if r.running == nil {
		return
	}
	// The read is not of one request, so no request ends it.
	ctx, cancel := context.WithCancelCause(context.Background())
	r.running.cancel = func() { cancel(errAbandoned) }
	go r.run(ctx, r.running)
}

// run reads once, and passes the result to the callers. It then begins the next read.
func (r *Reads[T]) run(ctx context.Context, running *read[T]) {
	var result T
	err := fmt.Errorf("the read of %s ended without a result", r.What) // no result must not look like none
	began := r.Clock.Now()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the read of %s panicked: %v", r.What, p)
			klog.FromContext(ctx).Error(err, "Cannot read "+r.What, "stack", string(debug.Stack()))
		}
		abandoned := err != nil && errors.Is(context.Cause(ctx), errAbandoned)
		running.cancel()
		if !abandoned && r.Ended != nil {
			r.Ended(ctx, r.Clock.Since(began), result, err)
		}

		r.mu.Lock()
		defer r.mu.Unlock()
		running.result, running.err = result, err
		close(running.done)
		r.begin()
	}()
	result, err = r.Read(ctx)
}
