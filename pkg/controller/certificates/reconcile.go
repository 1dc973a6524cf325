/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import (
	"crypto/x509"
	"slices"
	"time"
)

// state is the content of the Secrets and of the APIService.
type state struct {
	// ca signs certificates. It is nil if there is none that can be used.
	ca *keyPair
	// trusted are the CAs that clients must trust: the one that signs, and the former ones.
	trusted []*x509.Certificate
	// published are the CAs that kube-apiserver trusts.
	published []*x509.Certificate
	// publishedSince is when this process first saw that published equals trusted.
	publishedSince time.Time
	// serving is the serving certificate, or nil.
	serving *keyPair
}

// action is the next step.
type action int

const (
	// rest waits.
	rest action = iota
	// makeCA creates a CA. The former ones stay trusted.
	makeCA
	// publish adds the trusted CAs to the APIService.
	publish
	// issue creates a serving certificate.
	issue
	// forget removes the former CAs.
	forget
)

// next returns the next action, and its time.
//
// The order keeps the server reachable. A CA is trusted before it signs the serving certificate, and
// until that certificate is replaced.
func next(s state, names []string, now time.Time) (action, time.Time) {
	// A CA of the future remains if the clock of the node was ahead. It cannot verify a certificate yet.
	if s.ca == nil || now.Before(s.ca.certificate.NotBefore) || !now.Before(renewal(s.ca.certificate)) || !slices.ContainsFunc(s.trusted, s.ca.certificate.Equal) {
		return makeCA, now
	}
	if !equal(s.published, s.trusted) {
		return publish, now
	}
	// The instances of kube-apiserver do not see the change at the same time.
	settled := s.publishedSince.Add(settle)
	good := s.serving != nil && trusted([]*x509.Certificate{s.ca.certificate}, s.serving.certificate, names, now)
	if !good || !now.Before(renewal(s.serving.certificate)) {
		if now.Before(settled) && s.serving != nil && trusted(s.trusted, s.serving.certificate, names, now) {
			return rest, settled
		}
		return issue, now
	}
	at := earliest(renewal(s.ca.certificate), renewal(s.serving.certificate))
	if len(s.trusted) == 1 {
		return rest, at
	}
	// Servers read a renewed certificate with a delay.
	replaced := s.serving.made().Add(forgetBefore)
	if now.Before(replaced) {
		return rest, earliest(at, replaced)
	}
	return forget, now
}

// renewal returns when to renew a certificate: when a third of its validity is left.
func renewal(certificate *x509.Certificate) time.Time {
	valid := certificate.NotAfter.Sub(certificate.NotBefore.Add(backdate))
	return certificate.NotAfter.Add(-valid / 3)
}

// trusted says whether a serving certificate is valid for names, and signed by one of the CAs.
func trusted(cas []*x509.Certificate, serving *x509.Certificate, names []string, now time.Time) bool {
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		_, err := serving.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now})
		return err != nil
	})
}

func equal(a, b []*x509.Certificate) bool {
	return slices.EqualFunc(a, b, (*x509.Certificate).Equal)
}

// unexpired returns the certificates that have not expired.
func unexpired(certificates []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certificates), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// union returns the certificates of both, each once.
func union(a, b []*x509.Certificate) []*x509.Certificate {
	result := slices.Clone(a)
	for _, certificate := range b {
		if !slices.ContainsFunc(result, certificate.Equal) {
			result = append(result, certificate)
		}
	}
	return result
}
