/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Metrics are the metrics of the controller.
type Metrics struct {
	openings    *metrics.Counter
	without     *metrics.CounterVec
	lifecycles  *metrics.Counter
	failures    *metrics.Counter
	timeToReady *metrics.Histogram
	deadlines   *metrics.CounterVec
	turns       *metrics.HistogramVec
}

const metricsNamespace, metricsSubsystem = "nsinit", "lifecycle"

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	const namespace, subsystem = metricsNamespace, metricsSubsystem
	return &Metrics{
		openings: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "gate_openings_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of namespaces whose gate this instance opened.",
		}),
		without: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "gate_openings_without_object_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of namespaces whose gate this instance opened although a required object did not exist, by object. See --required-objects.",
		}, []string{"object"}),
		lifecycles: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "created_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of NamespaceLifecycles that this instance created.",
		}),
		failures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "reconcile_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of times that the next step for a namespace failed and is retried.",
		}),
		timeToReady: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "time_to_ready_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time from the creation of a namespace to the opening of its gate, in seconds. Creation times are whole seconds.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600},
		}),
		deadlines: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "deadlines_missed_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of initializers that missed their deadline, by the failurePolicy that took effect.",
		}, []string{"failure_policy"}),
		turns: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "turn_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long the turn of an initializer took, in seconds, by its result: Done, Skipped or Failed.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
		}, []string{"initializer", "state"}),
	}
}

// Register registers the metrics with the given function of a registry.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	for _, metric := range []metrics.Registerable{m.openings, m.without, m.lifecycles, m.failures, m.timeToReady, m.deadlines, m.turns} {
		if err := register(metric); err != nil {
			return err
		}
	}
	for _, policy := range []v1alpha1.FailurePolicyType{v1alpha1.Fail, v1alpha1.Ignore} {
		m.deadlines.WithLabelValues(string(policy)) // exported as 0, so that Prometheus sees the first increase
	}
	return nil
}
