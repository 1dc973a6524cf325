/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
)

// ServingCertificate reports how long the serving certificate is valid.
type ServingCertificate struct {
	// Content returns the current certificates and the key in PEM. Nil: the server does not
	// listen.
	Content func() (certificate, key []byte)
	Clock   clock.PassiveClock
}

// Expiring returns an error if the certificate was not renewed in time. nsinit-controller-manager and
// cert-manager renew it when a third of its validity is left, so with a sixth left, neither does.
func (s ServingCertificate) Expiring() error {
	begins, ends, err := s.validity()
	if err != nil {
		return err
	}
	left := ends.Sub(s.Clock.Now())
	switch {
	case left <= 0:
		return fmt.Errorf("the serving certificate expired at %s and kube-apiserver rejects it: see the log of nsinit-controller-manager, or of cert-manager if it issues the certificate", ends.UTC().Format(time.RFC3339))
	case left < ends.Sub(begins)/6:
		return fmt.Errorf("the serving certificate expires in %s, at %s, and was not renewed: see the log of nsinit-controller-manager, or of cert-manager if it issues the certificate", left.Round(time.Second), ends.UTC().Format(time.RFC3339))
	}
	return nil
}

// Metric returns the metric of the expiration.
func (s ServingCertificate) Metric() prometheus.Collector {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace: "nsinit", Subsystem: "serving_certificate", Name: "expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time when the serving certificate expires, in seconds since 1970. The value is 0 if nsinit-apiserver cannot read the certificate.",
	}, func() float64 {
		_, ends, err := s.validity()
		if err != nil {
			return 0
		}
		return float64(ends.Unix())
	})
}

// validity returns the period in which every certificate of the chain is valid.
func (s ServingCertificate) validity() (begins, ends time.Time, err error) {
	if s.Content == nil {
		return begins, ends, errors.New("there is no serving certificate")
	}
	data, _ := s.Content()
	chain, err := cert.ParseCertsPEM(data)
	if err != nil {
		return begins, ends, fmt.Errorf("cannot parse the serving certificate: %w", err)
	}
	begins, ends = chain[0].NotBefore, chain[0].NotAfter
	for _, certificate := range chain[1:] {
		if certificate.NotAfter.Before(ends) {
			ends = certificate.NotAfter
		}
	}
	return begins, ends, nil
}
