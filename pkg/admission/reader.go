/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/cached"
)

// readTimeout bounds one read. A request waits for at most two reads, which end before timing.CreateTimeout,
// so its client gets the cause.
const readTimeout = 2 * time.Second

// List returns all configurations at one revision that is not older than the beginning of the call. It
// returns when its context ends.
type List func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)

// Reader reads configurations. Its callers share consistent reads.
type Reader struct {
	list    List
	verify  func(ctx context.Context) error
	timeout time.Duration
	reads   cached.Reads[[]v1alpha1.NamespaceInitializerConfiguration]
	// failing is true if the last read failed.
	failing bool

	requests, failures *metrics.Counter
	duration           *metrics.Histogram
}

// NewReader returns a Reader, and registers its metrics. It calls verify after each list, and uses the list only if verify returns
// nil: all earlier reads were then from the storage in use.
func NewReader(list List, verify func(ctx context.Context) error, clock clock.PassiveClock, register func(metrics.Registerable) error) (*Reader, error) {
	const namespace, subsystem = "nsinit", "configurations"
	r := &Reader{
		list: list, verify: verify, timeout: readTimeout,
		requests: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of requests that needed the configurations. Requests that arrive during a read share the next read.",
		}),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "read_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long each successful consistent read of the configurations took, in seconds. A request that needs the configurations waits for at most two reads.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2},
		}),
		failures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "read_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of consistent reads of the configurations that failed. nsinit-apiserver refused the NamespaceLifecycles that needed these reads.",
		}),
	}
	r.reads.What, r.reads.Read, r.reads.Clock, r.reads.Ended = "the configurations", r.read, clock, r.ended
	return r, errors.Join(register(r.requests), register(r.duration), register(r.failures))
}

// Configurations returns the configurations, as Dependencies requires. The error is that of the read, or the cause of the end of ctx.
func (r *Reader) Configurations(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	r.requests.Inc()
	return r.reads.Do(ctx)
}

// Ready returns why NamespaceLifecycles cannot be created, or nil. It reads the configurations.
func (r *Reader) Ready(ctx context.Context) error {
	_, err := r.Configurations(ctx)
	return err
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

// ended counts a read, and logs the first failure and the first success after it. Reads end one after the other.
func (r *Reader) ended(ctx context.Context, took time.Duration, items []v1alpha1.NamespaceInitializerConfiguration, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		r.duration.Observe(took.Seconds())
	} else {
		r.failures.Inc()
	}
	switch {
	case err != nil && !r.failing:
		logger.Error(err, "NamespaceLifecycles are refused until the configurations can be read")
	case err == nil && r.failing:
		logger.Info("Read the configurations again: NamespaceLifecycles are created", "count", len(items))
	}
	r.failing = err != nil
}
