/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// lateFiles is the certificate in two files that are not there yet, because it is this program
// that makes them: another one until then. It is looked at once a minute by whoever serves it.
type lateFiles struct {
	dynamiccertificates.CertKeyContentProvider // until then

	certFile, keyFile string

	mu        sync.Mutex
	cert, key []byte
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. What cannot be used,
// such as a key that is not that of the certificate yet, changes nothing.
func (f *lateFiles) CurrentCertKeyContent() (cert, key []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cert, certErr := os.ReadFile(f.certFile)
	key, keyErr := os.ReadFile(f.keyFile)
	if certErr == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err == nil {
			f.cert, f.key = cert, key
		}
	}
	if f.cert == nil {
		return f.CertKeyContentProvider.CurrentCertKeyContent()
	}
	return f.cert, f.key
}

// defaultCertificate makes a certificate for an instance that was given none, or whose files are
// missing because no instance has made them yet.
func defaultCertificate(secure *genericoptions.SecureServingOptions, makesThem bool) error {
	files := secure.ServerCert.CertKey
	_, err := os.Stat(files.CertFile)
	late := makesThem && files.CertFile != "" && os.IsNotExist(err)
	if late {
		secure.ServerCert.CertKey = genericoptions.CertKey{}
	}
	if err := secure.MaybeDefaultWithSelfSignedCerts(name, nil, nil); err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	if late {
		secure.ServerCert.GeneratedCert = &lateFiles{CertKeyContentProvider: secure.ServerCert.GeneratedCert, certFile: files.CertFile, keyFile: files.KeyFile}
	}
	return nil
}
