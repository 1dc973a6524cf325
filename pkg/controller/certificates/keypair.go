/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// backdate allows for clock skew.
const backdate = 5 * time.Minute

// keyPair is a certificate and its key.
type keyPair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// newCA returns a new CA.
func newCA(now time.Time, valid time.Duration) (*keyPair, error) {
	return sign(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("nsinit-ca@%d", now.Unix())},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, now, valid)
}

// newServing returns a new serving certificate for DNS names. The first one is the common name.
func newServing(ca *keyPair, names []string, now time.Time, valid time.Duration) (*keyPair, error) {
	// A certificate does not outlive its CA.
	valid = min(valid, ca.certificate.NotAfter.Sub(now))
	return sign(ca, &x509.Certificate{
		Subject:               pkix.Name{CommonName: names[0]},
		DNSNames:              names,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}, now, valid)
}

// sign returns a new key with a certificate. The certificate is self-signed if ca is nil.
func sign(ca *keyPair, template *x509.Certificate, now time.Time, valid time.Duration) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(valid)
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.certificate, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &keyPair{certificate, key}, nil
}

// made returns when a certificate of this package was created.
func (p *keyPair) made() time.Time { return p.certificate.NotBefore.Add(backdate) }

// encode returns both in PEM.
func (p *keyPair) encode() (certificate, key []byte, err error) {
	key, err = keyutil.MarshalPrivateKeyToPEM(p.key)
	return encode([]*x509.Certificate{p.certificate}), key, err
}

// parseKeyPair reads the result of encode. The key must belong to the certificate.
func parseKeyPair(certificate, key []byte) (*keyPair, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return &keyPair{pair.Leaf, signer}, nil
}

// encode returns certificates in PEM.
func encode(certificates []*x509.Certificate) []byte {
	data, err := cert.EncodeCertificates(certificates...)
	if err != nil {
		return nil // a buffer has no write error
	}
	return bytes.TrimSpace(data)
}

// parse returns the certificates in PEM data, and none if it is damaged.
func parse(data []byte) []*x509.Certificate {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil
	}
	return certificates
}
