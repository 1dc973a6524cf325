/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
)

// EarlyWrites is the name of the webhook.
const EarlyWrites = "early-writes"

// Options configures the webhook.
type Options struct {
	// Namespaces may not have the latest namespaces yet.
	Namespaces corelisters.NamespaceLister
	Clock      clock.PassiveClock
	Metrics    *Metrics
}

// NewEarlyWrites returns the webhook.
func NewEarlyWrites(options Options) Answer {
	return func(_ context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		namespace, _ := options.Namespaces.Get(request.Namespace) // nil: not in the cache yet
		response := retry(request, namespace, options.Clock.Now())
		options.Metrics.count(response)
		return response
	}
}

// Metrics are the metrics of the webhook.
type Metrics struct{ answers *metrics.CounterVec }

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{answers: metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "nsinit", Name: "early_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of refused writes into namespaces that are being initialized, by answer: later, if the client should retry, or never.",
	}, []string{"answer"})}
}

// Register registers the metrics.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	if err := register(m.answers); err != nil {
		return err
	}
	for _, label := range []string{later, never} {
		m.answers.WithLabelValues(label) // exported as 0, so that Prometheus sees the first increase
	}
	return nil
}

// Values of the label answer.
const (
	later = "later"
	never = "never"
)

// count counts a refusal. An admitted request is not an early write.
func (m *Metrics) count(response *admissionv1.AdmissionResponse) {
	if response.Allowed {
		return
	}
	label := later
	if response.Result.Details.RetryAfterSeconds == 0 {
		label = never
	}
	m.answers.WithLabelValues(label).Inc()
}
