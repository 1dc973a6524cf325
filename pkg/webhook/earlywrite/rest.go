/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package earlywrite

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/webhook/admissionreview"
)

// Name is the name of the webhook.
const Name = "early-writes"

// Options are what the webhook needs.
type Options struct {
	// Namespaces tells of namespaces. What it does not know yet is answered, too.
	Namespaces corelisters.NamespaceLister
	Clock      clock.PassiveClock
	Metrics    *Metrics
}

// New returns what answers.
func New(options Options) admissionreview.Answer {
	return func(_ context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		namespace, err := options.Namespaces.Get(request.Namespace)
		if err != nil {
			namespace = nil // it is younger than what is known of it
		}
		response := answer(request, namespace, options.Clock.Now())
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
		Help: "Number of writes into namespaces that are being initialized, by what was answered: later, to those that should try again, or never. " +
			"Nobody asks about namespaces that are open.",
	}, []string{"answer"})}
}

// Register registers the metrics.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	if err := register(m.answers); err != nil {
		return err
	}
	for _, label := range []string{later, never} {
		m.answers.WithLabelValues(label) // at 0: what begins at 1 has not increased, to Prometheus
	}
	return nil
}

// What is answered, as the label answer tells.
const (
	later = "later"
	never = "never"
)

// count counts a refusal: what is admitted is not an early write.
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
