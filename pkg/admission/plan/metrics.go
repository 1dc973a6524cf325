/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"math"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/pkg/util/measured"
)

// Registry registers metrics, like the registries of component-base.
type Registry interface {
	Register(metrics.Registerable) error
	CustomRegister(metrics.StableCollector) error
}

// Metrics are the metrics of a Poller.
type Metrics struct {
	age      *measured.Gauge
	duration *metrics.Histogram
	failures *metrics.Counter
}

const namespace, subsystem = "nsinit", "configurations"

func newMetrics(p *Poller) *Metrics {
	return &Metrics{
		age: measured.NewGauge(namespace, subsystem, "list_age_seconds",
			"Time since the last successful list of the configurations began, in seconds; infinite before the first. Above 5, NamespaceLifecycles cannot be created.", p.ageSeconds),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "list_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time that successful lists of the configurations took, in seconds. A change applies one second and one list after it was acknowledged.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3},
		}),
		failures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "list_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of lists of the configurations that failed.",
		}),
	}
}

// Register registers the metrics.
func (m *Metrics) Register(registry Registry) error {
	if err := registry.CustomRegister(m.age); err != nil {
		return err
	}
	if err := registry.Register(m.duration); err != nil {
		return err
	}
	return registry.Register(m.failures)
}

func (m *Metrics) observe(took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.duration.Observe(took.Seconds())
}

// ageSeconds is infinite before the first list.
func (p *Poller) ageSeconds() float64 {
	age, listed := p.Age()
	if !listed {
		return math.Inf(1)
	}
	return age.Seconds()
}
