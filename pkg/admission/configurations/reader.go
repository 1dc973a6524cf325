/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configurations

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission/plan"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// readTimeout bounds one read. A request waits for at most two reads, which end before timing.CreateTimeout,
// so its client gets the cause.
const readTimeout = 2 * time.Second

// List returns all configurations at one revision that is not older than the beginning of the call. It
// returns when its context ends.
type List func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)

// Reader is a plan.Source whose callers share consistent reads.
type Reader struct {
	list    List
	verify  func(ctx context.Context) error
	clock   clock.PassiveClock
	timeout time.Duration
	metrics *Metrics

	mu sync.Mutex
	// running is the read in flight, or nil. Its result is for the callers that arrived before it began.
	running *read
	// next is the read that begins after it, or nil. It is for the callers that arrived since.
	next *read
	// failing is true if the last read failed.
	failing bool
}

var _ plan.Source = (*Reader)(nil)

// read is one read, and what its callers wait for.
type read struct {
	// callers is the number of callers that wait. Reader.mu protects it.
	callers int
	// cancel ends a read that is running.
	cancel context.CancelFunc
	// done is closed when the result is set.
	done  chan struct{}
	items []v1alpha1.NamespaceInitializerConfiguration
	err   error
}

// errAbandoned is the cause of the end of a read whose last caller has left.
var errAbandoned = errors.New("no request waits for the configurations")

// NewReader returns a Reader. It calls verify after each list, and uses the list only if verify returns nil:
// all earlier reads were then from the storage in use.
func NewReader(list List, verify func(ctx context.Context) error, clock clock.PassiveClock) *Reader {
	return &Reader{list: list, verify: verify, clock: clock, timeout: readTimeout, metrics: newMetrics()}
}

// Configurations implements plan.Source. The error is that of the read, or the cause of the end of ctx.
func (r *Reader) Configurations(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	read := r.join()
	select {
	case <-read.done:
		return read.items, read.err
	case <-ctx.Done():
		r.leave(read)
		return nil, fmt.Errorf("cannot wait for the configurations: %w", context.Cause(ctx))
	}
}

// Ready returns why NamespaceLifecycles cannot be created, or nil. It reads the configurations.
func (r *Reader) Ready(ctx context.Context) error {
	_, err := r.Configurations(ctx)
	return err
}

// Metrics returns the metrics of the reads.
func (r *Reader) Metrics() *Metrics { return r.metrics }

// join adds a caller to the next read, which begins immediately unless another one is running.
func (r *Reader) join() *read {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics.requests.Inc()
	if r.next == nil {
		r.next = &read{done: make(chan struct{})}
	}
	joined := r.next
	joined.callers++
	if r.running == nil {
		r.begin()
	}
	return joined
}

// leave removes a caller. A read without callers ends early, or never begins.
func (r *Reader) leave(left *read) {
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
func (r *Reader) begin() {
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
func (r *Reader) run(ctx context.Context, running *read) {
	var items []v1alpha1.NamespaceInitializerConfiguration
	err := errors.New("the read of the configurations ended without a result") // no result must not look like none
	began := r.clock.Now()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the read of the configurations panicked: %v", p)
			klog.FromContext(ctx).Error(err, "Cannot read the configurations", "stack", string(debug.Stack()))
		}
		abandoned := err != nil && errors.Is(context.Cause(ctx), errAbandoned)
		running.cancel()

		r.mu.Lock()
		defer r.mu.Unlock()
		if !abandoned {
			r.metrics.observe(r.clock.Since(began), err)
			r.report(ctx, items, err)
		}
		running.items, running.err = items, err
		close(running.done)
		r.begin()
	}()
	items, err = r.read(ctx)
}

// read returns the configurations in the right storage, within the timeout.
func (r *Reader) read(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("etcd did not answer within %s", r.timeout))
	defer cancel()
	items, err := r.list(ctx)
	if err == nil {
		err = r.verify(ctx)
	}
	switch {
	case err == nil:
		return items, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("cannot read the configurations: %w", context.Cause(ctx))
	}
	return nil, fmt.Errorf("cannot read the configurations: %w", err)
}

// report logs the first failure and the first success after it. The caller holds the lock.
func (r *Reader) report(ctx context.Context, items []v1alpha1.NamespaceInitializerConfiguration, err error) {
	logger := klog.FromContext(ctx)
	switch {
	case err != nil && !r.failing:
		logger.Error(err, "NamespaceLifecycles are refused until the configurations can be read")
	case err == nil && r.failing:
		logger.Info("Read the configurations again: NamespaceLifecycles are created", "count", len(items))
	}
	r.failing = err != nil
}
