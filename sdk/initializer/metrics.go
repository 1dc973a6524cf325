/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	running  *prometheus.GaugeVec
}

func newMetrics(name string) *runnerMetrics {
	const namespace, subsystem = "nsinit", "initializer"
	initializer := prometheus.Labels{"initializer": name} // several Runners can register in one registry
	return &runnerMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "calls_total", ConstLabels: initializer,
			Help: "Number of completed calls of the functions Initialize and Finalize. The result is done, error (the SDK retries), failed (the SDK does not retry) or over (the turn ended before the call ended).",
		}, []string{"operation", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "call_duration_seconds", ConstLabels: initializer,
			Help:    "How long each call of the functions Initialize and Finalize took, in seconds. The operation is initialize or finalize.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300},
		}, []string{"operation"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "calls_in_progress", ConstLabels: initializer,
			Help: "Number of calls of the functions Initialize and Finalize that are running now. The operation is initialize or finalize.",
		}, []string{"operation"}),
	}
}

func (m *runnerMetrics) register(registry prometheus.Registerer) error {
	for _, metric := range []prometheus.Collector{m.calls, m.duration, m.running} {
		if err := registry.Register(metric); err != nil {
			return err
		}
	}
	for _, o := range []operation{initialize, finalize} {
		for _, result := range []string{resultDone, resultError, resultFailed, resultOver} {
			m.calls.WithLabelValues(string(o), result) // Prometheus sees no increase in a counter that begins at 1
		}
	}
	return nil
}

// began counts a call, and returns what counts its end.
func (m *runnerMetrics) began(o operation, now func() time.Time) (ended func(result string)) {
	start := now()
	m.running.WithLabelValues(string(o)).Inc()
	return func(result string) {
		m.running.WithLabelValues(string(o)).Dec()
		m.duration.WithLabelValues(string(o)).Observe(now().Sub(start).Seconds())
		m.calls.WithLabelValues(string(o), result).Inc()
	}
}
