/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// generateKey writes cosign.key and cosign.pub as cosign generate-key-pair does. The password is in COSIGN_PASSWORD.
func generateKey(dir string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	data, err := encrypted.Encrypt(der, []byte(os.Getenv("COSIGN_PASSWORD")))
	if err != nil {
		return err
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "cosign.key"), pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: data}), 0o600),
		os.WriteFile(filepath.Join(dir, "cosign.pub"), public, 0o600))
}
