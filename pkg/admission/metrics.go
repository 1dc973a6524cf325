/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"errors"
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are the metrics of a Reader.
type Metrics struct {
	requests *metrics.Counter
	duration *metrics.Histogram
	failures *metrics.Counter
}

const namespace, subsystem = "nsinit", "configurations"

func newMetrics() *Metrics {
	return &Metrics{
		requests: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of requests that needed the configurations. Requests that arrive during a read share the next one.",
		}),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "read_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time that successful consistent reads of the configurations took, in seconds. A request waits for at most two reads.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2},
		}),
		failures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "read_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of consistent reads of the configurations that failed. The NamespaceLifecycles that needed them were refused.",
		}),
	}
}

// Register registers the metrics.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	return errors.Join(register(m.requests), register(m.duration), register(m.failures))
}

func (m *Metrics) observe(took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.duration.Observe(took.Seconds())
}
