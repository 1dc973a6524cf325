/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
	cleanups    *metrics.HistogramVec
}

const metricsNamespace, metricsSubsystem = "nsinit", "lifecycle"

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	counter := func(name, help string) *metrics.CounterOpts {
		return &metrics.CounterOpts{Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, StabilityLevel: metrics.ALPHA, Help: help}
	}
	histogram := func(name, help string, buckets ...float64) *metrics.HistogramOpts {
		return &metrics.HistogramOpts{Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, StabilityLevel: metrics.ALPHA, Help: help,
			Buckets: buckets}
	}
	return &Metrics{
		openings: metrics.NewCounter(counter("gate_openings_total", "Number of namespaces whose gate this instance opened.")),
		without: metrics.NewCounterVec(counter("gate_openings_without_object_total",
			"Number of namespaces whose gate this instance opened although a required object did not exist. The label names the missing object. The flag --required-objects lists the required objects."), []string{"object"}),
		lifecycles: metrics.NewCounter(counter("created_total", "Number of NamespaceLifecycles that this instance created.")),
		failures:   metrics.NewCounter(counter("reconcile_failures_total", "Number of times that the next step for a namespace failed. nsinit-controller-manager retries each step.")),
		timeToReady: metrics.NewHistogram(histogram("time_to_ready_seconds",
			"Time from the creation of a namespace to the opening of its gate, in seconds. Creation timestamps are whole seconds.",
			0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600)),
		deadlines: metrics.NewCounterVec(counter("deadlines_missed_total",
			"Number of initializers that missed their deadline. The label is the failurePolicy that nsinit applied."), []string{"failure_policy"}),
		turns: metrics.NewHistogramVec(histogram("turn_duration_seconds",
			"How long the turn of an initializer took, in seconds. The state is Done, Skipped or Failed.",
			0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800), []string{"initializer", "state"}),
		cleanups: metrics.NewHistogramVec(histogram("participant_duration_seconds",
			"How long a participant took to clean up after a deleted namespace, in seconds. Deletion timestamps are whole seconds.",
			1, 2, 5, 10, 30, 60, 300, 1800, 3600), []string{"participant"}),
	}
}

// Register registers the metrics with the given function of a registry.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	for _, metric := range []metrics.Registerable{m.openings, m.without, m.lifecycles, m.failures, m.timeToReady, m.deadlines, m.turns, m.cleanups} {
		if err := register(metric); err != nil {
			return err
		}
	}
	for _, policy := range []v1alpha1.FailurePolicyType{v1alpha1.Fail, v1alpha1.Ignore} {
		m.deadlines.WithLabelValues(string(policy)) // exported as 0, so that Prometheus sees the first increase
	}
	return nil
}
