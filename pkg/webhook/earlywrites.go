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

// NewEarlyWrites returns the webhook, and registers its metric. The lister may not have the latest namespaces yet.
func NewEarlyWrites(namespaces corelisters.NamespaceLister, clock clock.PassiveClock, register func(metrics.Registerable) error) (Answer, error) {
	answers := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "nsinit", Name: "early_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes that early-writes refused, because the namespace was closed. The answer is \"later\" if the client should retry, and \"never\" if the client should not retry.",
	}, []string{"answer"})
	if err := register(answers); err != nil {
		return nil, err
	}
	later, never := answers.WithLabelValues("later"), answers.WithLabelValues("never") // exported as 0, so that Prometheus sees the first increase
	return func(_ context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		namespace, _ := namespaces.Get(request.Namespace) // nil: not in the cache yet
		response := retry(request, namespace, clock.Now())
		switch {
		case response.Allowed: // not an early write
		case response.Result.Details.RetryAfterSeconds == 0:
			never.Inc()
		default:
			later.Inc()
		}
		return response
	}, nil
}
