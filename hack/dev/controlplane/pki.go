/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is how long certificates last: longer than a state directory is kept, because
// nothing renews them.
const validity = 10 * 365 * 24 * time.Hour

// PKI is a directory of certificates and keys. It keeps the certificates that are still valid, so a
// control plane that was stopped starts again with the same identities.
type PKI struct {
	Dir string
}

// Cert is the path of a certificate.
func (p PKI) Cert(name string) string { return filepath.Join(p.Dir, name+".crt") }

// Key is the path of a private key.
func (p PKI) Key(name string) string { return filepath.Join(p.Dir, name+".key") }

// EnsureCA makes a CA unless it exists.
func (p PKI) EnsureCA(name string) error {
	return p.ensure(name, "", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "nsinit-dev " + name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
}

// EnsureServing makes a serving certificate for loopback and the given names, which also
// serves as the client certificate between peers.
func (p PKI) EnsureServing(name, ca string, dnsNames ...string) error {
	return p.ensure(name, ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    append([]string{"localhost"}, dnsNames...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// EnsureClient makes a client certificate for a user and groups.
func (p PKI) EnsureClient(name, ca, user string, groups ...string) error {
	return p.ensure(name, ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// EnsureKey makes a private key unless it exists.
func (p PKI) EnsureKey(name string) error {
	_, _, err := keyutil.LoadOrGenerateKeyFile(p.Key(name))
	return err
}

// Reissue replaces a certificate by one for the same key, subject and names that is valid until
// the given time.
func (p PKI) Reissue(name, ca string, until time.Time) error {
	template, key, err := p.load(name)
	if err != nil {
		return err
	}
	template.SerialNumber, template.NotAfter = nil, until
	return p.issue(name, ca, template, key)
}

func (p PKI) ensure(name, ca string, template *x509.Certificate) error {
	if p.holds(name, ca, template) {
		return nil
	}
	data, _, err := keyutil.LoadOrGenerateKeyFile(p.Key(name))
	if err != nil {
		return err
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return err
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = time.Now().Add(validity)
	return p.issue(name, ca, template, key.(crypto.Signer))
}

// issue writes a certificate for a key. It is self-signed if ca is empty.
func (p PKI) issue(name, ca string, template *x509.Certificate, key crypto.Signer) error {
	parent, signer := template, key
	if ca != "" {
		var err error
		if parent, signer, err = p.load(ca); err != nil {
			return fmt.Errorf("cannot load the CA %q: %w", ca, err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	if err := cert.WriteCert(p.Cert(name)+".new", data); err != nil {
		return err
	}
	return os.Rename(p.Cert(name)+".new", p.Cert(name))
}

// holds reports whether a valid certificate and its key exist for the same subject and names, issued by
// the current CA.
func (p PKI) holds(name, ca string, want *x509.Certificate) bool {
	certificate, _, err := p.load(name)
	if err != nil || time.Now().After(certificate.NotAfter) {
		return false
	}
	// DER sorts the organizations, which are groups.
	groups, wantGroups := slices.Sorted(slices.Values(certificate.Subject.Organization)), slices.Sorted(slices.Values(want.Subject.Organization))
	if certificate.Subject.CommonName != want.Subject.CommonName || !slices.Equal(groups, wantGroups) ||
		!slices.Equal(certificate.DNSNames, want.DNSNames) {
		return false
	}
	authority := certificate
	if ca != "" {
		if authority, _, err = p.load(ca); err != nil {
			return false
		}
	}
	return certificate.CheckSignatureFrom(authority) == nil
}

func (p PKI) load(name string) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.LoadX509KeyPair(p.Cert(name), p.Key(name))
	if err != nil {
		return nil, nil, err
	}
	return pair.Leaf, pair.PrivateKey.(crypto.Signer), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
