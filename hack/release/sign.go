/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// The format of signatures of cosign.
const (
	simpleSigning       = "application/vnd.dev.cosign.simplesigning.v1+json"
	envelopeType        = "application/vnd.dsse.envelope.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	keyVariable         = "COSIGN_KEY"
	passwordVariable    = "COSIGN_PASSWORD"
)

// key signs as cosign does.
type key struct{ signature.Signer }

// loadKey reads the private key that cosign generate-key-pair writes, with its password.
func loadKey() (*key, error) {
	file := os.Getenv(keyVariable)
	if file == "" {
		return nil, errors.New("nothing signs the release: set " + keyVariable + " to the file of a private key of cosign generate-key-pair, and " +
			passwordVariable + " to its password; or set UNSIGNED=true to sign nothing")
	}
	signer, err := signature.LoadSignerFromPEMFile(file, crypto.SHA256, cryptoutils.StaticPasswordFunc([]byte(os.Getenv(passwordVariable))))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read a private key of cosign generate-key-pair from %s with the password in %s: %w", keyVariable, file, passwordVariable, err)
	}
	return &key{signer}, nil
}

// public returns the public key in PEM.
func (k *key) public() ([]byte, error) {
	public, err := k.PublicKey()
	if err != nil {
		return nil, err
	}
	return cryptoutils.MarshalPublicKeyToPEM(public)
}

// sign returns the signature of data in base64.
func (k *key) sign(data []byte) (string, error) {
	signed, err := k.SignMessage(bytes.NewReader(data))
	return base64.StdEncoding.EncodeToString(signed), err
}

// envelope returns a signed DSSE envelope with an in-toto statement.
func (k *key) envelope(statement []byte) ([]byte, error) {
	return dsse.WrapSigner(k, "application/vnd.in-toto+json").SignMessage(bytes.NewReader(statement))
}

// attest adds the signature and the provenance of an image to its layout, unless nothing is signed.
func (r *release) attest(to layout.Path, digest v1.Hash, repository string) error {
	if r.key == nil {
		return nil
	}
	reference, err := name.NewDigest(repository + "@" + digest.String())
	if err != nil {
		return err
	}
	claim, err := payload.Cosign{Image: reference}.MarshalJSON()
	if err != nil {
		return err
	}
	signed, err := r.key.sign(claim)
	if err != nil {
		return err
	}
	statement, err := r.statement(subject(repository, digest.Hex))
	if err != nil {
		return err
	}
	envelope, err := r.key.envelope(statement)
	if err != nil {
		return err
	}
	return errors.Join(
		r.attach(to, kindSignature, claim, simpleSigning, map[string]string{signatureAnnotation: signed}),
		r.attach(to, kindStatement, envelope, envelopeType, map[string]string{signatureAnnotation: "", "predicateType": predicateType}))
}

// attach adds an image with one layer to a layout, which is how cosign stores what belongs to another image.
func (r *release) attach(to layout.Path, as string, data []byte, mediaType types.MediaType, annotations map[string]string) error {
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: static.NewLayer(data, mediaType), MediaType: mediaType, Annotations: annotations, History: v1.History{Created: v1.Time{Time: r.time}},
	})
	if err != nil {
		return err
	}
	return to.AppendImage(image, layout.WithAnnotations(map[string]string{kind: as}))
}
