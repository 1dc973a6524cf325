/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"time"

	"k8s.io/component-base/metrics"
)

// The values of the label result.
const (
	resultDone   = "done"
	resultError  = "error"
	resultFailed = "failed"
	resultOver   = "over"
)

// runnerMetrics are the metrics of one Runner.
type runnerMetrics struct {
	calls    *metrics.CounterVec
	duration *metrics.HistogramVec
	running  *metrics.GaugeVec
	name     string
}

func newMetrics(name string) *runnerMetrics {
	const namespace, subsystem = "nsinit", "initializer"
	labels := []string{"initializer", "operation"}
	return &runnerMetrics{
		name: name,
		calls: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "calls_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of calls of an initializer's functions that have ended, by their result: done, error (tried again), failed (for good), over (the turn ended before).",
		}, append(labels, "result")),
		duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "call_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long a call of an initializer's functions took, in seconds.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300},
		}, labels),
		running: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "calls_in_progress", StabilityLevel: metrics.ALPHA,
			Help: "Number of calls of an initializer's functions that are in progress.",
		}, labels),
	}
}

func (m *runnerMetrics) register(registry metrics.KubeRegistry) error {
	for _, metric := range []metrics.Registerable{m.calls, m.duration, m.running} {
		if err := registry.Register(metric); err != nil {
			return err
		}
	}
	for _, o := range []operation{initialize, finalize} {
		for _, result := range []string{resultDone, resultError, resultFailed, resultOver} {
			m.calls.WithLabelValues(m.name, string(o), result) // Prometheus sees no increase in a counter that begins at 1
		}
	}
	return nil
}

// began counts a call, and returns what counts its end.
func (m *runnerMetrics) began(o operation, now func() time.Time) (ended func(result string)) {
	start := now()
	m.running.WithLabelValues(m.name, string(o)).Inc()
	return func(result string) {
		m.running.WithLabelValues(m.name, string(o)).Dec()
		m.duration.WithLabelValues(m.name, string(o)).Observe(now().Sub(start).Seconds())
		m.calls.WithLabelValues(m.name, string(o), result).Inc()
	}
}
