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

// lateFiles provides a certificate whose files do not exist yet, because this program issues it. Until
// then, it provides another certificate. The server reads it once a minute.
type lateFiles struct {
	dynamiccertificates.CertKeyContentProvider // while the files do not exist

	certFile, keyFile string

	mu        sync.Mutex
	cert, key []byte
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. It ignores invalid files,
// such as a new certificate with the old key.
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

// defaultCertificate creates a self-signed certificate if none is configured, or if its files do not
// exist because no instance has issued it yet.
func defaultCertificate(secure *genericoptions.SecureServingOptions, issued bool) error {
	files := secure.ServerCert.CertKey
	_, err := os.Stat(files.CertFile)
	late := issued && files.CertFile != "" && os.IsNotExist(err)
	if late {
		secure.ServerCert.CertKey = genericoptions.CertKey{}
	}
	if err := secure.MaybeDefaultWithSelfSignedCerts(name, nil, nil); err != nil {
		return fmt.Errorf("cannot create a certificate: %w", err)
	}
	if late {
		secure.ServerCert.GeneratedCert = &lateFiles{CertKeyContentProvider: secure.ServerCert.GeneratedCert, certFile: files.CertFile, keyFile: files.KeyFile}
	}
	return nil
}
