/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import "k8s.io/component-base/metrics"

// Metrics are the metrics of the controller.
type Metrics struct{ expiration *metrics.GaugeVec }

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	return &Metrics{expiration: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "nsinit", Subsystem: "certificate", Name: "expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "When the CA and the serving certificate of nsinit-apiserver expire, in seconds since 1970. They are renewed when a third of their validity is left.",
	}, []string{"certificate"})}
}

// Register registers the metrics.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	return register(m.expiration)
}

func (m *Metrics) observe(s state) {
	for name, pair := range map[string]*keyPair{"ca": s.ca, "serving": s.serving} {
		if pair != nil {
			m.expiration.WithLabelValues(name).Set(float64(pair.certificate.NotAfter.Unix()))
		}
	}
}
