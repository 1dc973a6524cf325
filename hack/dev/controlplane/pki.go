/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// validity is how long certificates last: longer than a state directory is kept, because
// nothing renews them.
const validity = 10 * 365 * 24 * time.Hour

// PKI is a directory of certificates and keys. What is there and still right is kept, so
// that a control plane that was stopped starts again with the same identities.
type PKI struct {
	Dir string
}

// Cert is the path of a certificate.
func (p PKI) Cert(name string) string { return filepath.Join(p.Dir, name+".crt") }

// Key is the path of a private key.
func (p PKI) Key(name string) string { return filepath.Join(p.Dir, name+".key") }

// EnsureCA makes a CA unless it is there.
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

// EnsureKeyPair makes the key by which service account tokens are signed.
func (p PKI) EnsureKeyPair(name string) error {
	if exists(p.Key(name)) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(p.Dir, name+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

// Reissue replaces a certificate by one for the same key, subject and names that is valid until
// the given time.
func (p PKI) Reissue(name, ca string, until time.Time) error {
	template, key, err := p.load(name)
	if err != nil {
		return err
	}
	authority, signer, err := p.load(ca)
	if err != nil {
		return fmt.Errorf("cannot load the CA %q: %w", ca, err)
	}
	template.NotBefore, template.NotAfter = authority.NotBefore, until
	if template.SerialNumber, err = newSerial(); err != nil {
		return err
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := writePEM(p.Cert(name)+".new", "CERTIFICATE", certificate); err != nil {
		return err
	}
	return os.Rename(p.Cert(name)+".new", p.Cert(name))
}

func (p PKI) ensure(name, ca string, template *x509.Certificate) error {
	if p.holds(name, ca, template) {
		return nil
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return err
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = time.Now().Add(validity)

	parent, signer := template, crypto.Signer(key)
	if ca != "" {
		if parent, signer, err = p.load(ca); err != nil {
			return fmt.Errorf("cannot load the CA %q: %w", ca, err)
		}
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := writePEM(p.Cert(name), "CERTIFICATE", certificate); err != nil {
		return err
	}
	return p.writeKey(name, key)
}

// holds says whether a certificate is there with its key, valid, for the same subject and
// names, and from the CA as it is now.
func (p PKI) holds(name, ca string, want *x509.Certificate) bool {
	certificate, key, err := p.load(name)
	if err != nil || !key.PublicKey.Equal(certificate.PublicKey) || time.Now().After(certificate.NotAfter) {
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

func (p PKI) load(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certPEM, err := os.ReadFile(p.Cert(name))
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(p.Key(name))
	if err != nil {
		return nil, nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("not PEM")
	}
	certificate, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return certificate, key, err
}

func (p PKI) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(p.Key(name), "EC PRIVATE KEY", der)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
