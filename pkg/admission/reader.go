/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"fmt"
	"time"

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
	metrics *Metrics
	reads   cached.Reads[[]v1alpha1.NamespaceInitializerConfiguration]
	// failing is true if the last read failed.
	failing bool
}

// NewReader returns a Reader. It calls verify after each list, and uses the list only if verify returns nil:
// all earlier reads were then from the storage in use.
func NewReader(list List, verify func(ctx context.Context) error, clock clock.PassiveClock) *Reader {
	r := &Reader{list: list, verify: verify, timeout: readTimeout, metrics: newMetrics()}
	r.reads.What, r.reads.Read, r.reads.Clock, r.reads.Ended = "the configurations", r.read, clock, r.ended
	return r
}

// Configurations returns the configurations, as Dependencies requires. The error is that of the read, or the cause of the end of ctx.
func (r *Reader) Configurations(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error) {
	r.metrics.requests.Inc()
	return r.reads.Do(ctx)
}

// Ready returns why NamespaceLifecycles cannot be created, or nil. It reads the configurations.
func (r *Reader) Ready(ctx context.Context) error {
	_, err := r.Configurations(ctx)
	return err
}

// Metrics returns the metrics of the reads.
func (r *Reader) Metrics() *Metrics { return r.metrics }

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
	r.metrics.observe(took, err)
	logger := klog.FromContext(ctx)
	switch {
	case err != nil && !r.failing:
		logger.Error(err, "NamespaceLifecycles are refused until the configurations can be read")
	case err == nil && r.failing:
		logger.Info("Read the configurations again: NamespaceLifecycles are created", "count", len(items))
	}
	r.failing = err != nil
}
