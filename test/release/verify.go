/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

const (
	imageFile      = "nsinit-image.tar"
	chartFile      = "nsinit-chart.tar"
	sumsFile       = "SHA256SUMS"
	provenanceFile = "provenance.intoto.jsonl"
)

// verify verifies a release with a public key: the signature and the provenance of the image and of the chart, the signature
// of the checksums, and the checksum and the provenance of each file.
func verify(release, keyFile string) error {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(key)
	if err != nil {
		return err
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return err
	}
	for _, file := range []string{imageFile, chartFile} {
		if err := withLayout(release, file, func(dir string) error { return verifyLayout(verifier, file, dir) }); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return verifyFiles(verifier, release)
}

// verifyLayout verifies the image or the chart in an OCI layout, as cosign verify --local-image and
// cosign verify-attestation --local-image do.
func verifyLayout(verifier signature.Verifier, file, dir string) error {
	if err := verifyBlobs(dir); err != nil {
		return err
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	root, err := path.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return err
	}
	parts := map[string]v1.Hash{}
	for _, descriptor := range manifest.Manifests {
		parts[strings.TrimPrefix(descriptor.Annotations["kind"], "dev.cosignproject.cosign/")] = descriptor.Digest
	}
	digest, found := parts["imageIndex"]
	if !found {
		digest, found = parts["image"]
	}
	if !found {
		return errors.New("the layout has no image")
	}
	if err := verifySignature(verifier, path, parts["sigs"], digest); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	_, envelope, err := layer(path, parts["atts"], "application/vnd.dsse.envelope.v1+json")
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	subjects, commit, err := verifyProvenance(verifier, envelope)
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if !slices.Equal(subjects, []string{digest.Hex}) {
		return fmt.Errorf("provenance: it is about %s, not about %s", subjects, digest)
	}
	fmt.Printf("%s: the signature and the provenance of %s are verified, built from commit %s\n", file, digest, commit)
	return nil
}

// verifyBlobs verifies that the content of each blob has the digest that is its name.
func verifyBlobs(dir string) error {
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		sum, err := fileSum(blob)
		if err != nil {
			return err
		}
		if sum != filepath.Base(blob) {
			return fmt.Errorf("the SHA-256 of blob %s is %s", filepath.Base(blob), sum)
		}
	}
	return nil
}

// verifySignature verifies a signature that cosign stores as an image: its layer is the claim, which names a digest.
func verifySignature(verifier signature.Verifier, path layout.Path, image, digest v1.Hash) error {
	annotations, claim, err := layer(path, image, "application/vnd.dev.cosign.simplesigning.v1+json")
	if err != nil {
		return err
	}
	if err := verifyText(verifier, claim, annotations["dev.cosignproject.cosign/signature"]); err != nil {
		return err
	}
	var simple payload.SimpleContainerImage
	if err := json.Unmarshal(claim, &simple); err != nil {
		return err
	}
	if signed := simple.Critical.Image.DockerManifestDigest; signed != digest.String() || simple.Critical.Type != payload.CosignSignatureType {
		return fmt.Errorf("the claim is a %q about %s, not about %s", simple.Critical.Type, signed, digest)
	}
	return nil
}

// layer returns the only layer of an image, and its annotations.
func layer(path layout.Path, image v1.Hash, mediaType string) (map[string]string, []byte, error) {
	if image == (v1.Hash{}) {
		return nil, nil, errors.New("the layout has none")
	}
	found, err := path.Image(image)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := found.Manifest()
	if err != nil {
		return nil, nil, err
	}
	if len(manifest.Layers) != 1 || string(manifest.Layers[0].MediaType) != mediaType {
		return nil, nil, fmt.Errorf("the layers are %v, want one %s", manifest.Layers, mediaType)
	}
	data, err := path.Bytes(manifest.Layers[0].Digest)
	return manifest.Layers[0].Annotations, data, err
}

// verifyText verifies a signature in base64, as cosign verify-blob does.
func verifyText(verifier signature.Verifier, text []byte, signed string) error {
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signed))
	if err != nil {
		return err
	}
	return verifier.VerifySignature(bytes.NewReader(decoded), bytes.NewReader(text))
}

// verifyProvenance verifies an in-toto envelope, and returns the SHA-256 of each subject and the commit.
func verifyProvenance(verifier signature.Verifier, envelope []byte) (subjects []string, commit string, err error) {
	if err := dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(envelope), nil); err != nil {
		return nil, "", err
	}
	var wrapped struct{ Payload []byte }
	if err := json.Unmarshal(envelope, &wrapped); err != nil {
		return nil, "", err
	}
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct{ Digest map[string]string }
		Predicate     struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Snapshot bool }
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(wrapped.Payload, &statement); err != nil {
		return nil, "", err
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		return nil, "", fmt.Errorf("the statement is a %s of type %s", statement.Type, statement.PredicateType)
	}
	for _, subject := range statement.Subject {
		subjects = append(subjects, subject.Digest["sha256"])
	}
	for _, dependency := range statement.Predicate.BuildDefinition.ResolvedDependencies {
		if found := dependency.Digest["gitCommit"]; found != "" {
			if commit = found; statement.Predicate.BuildDefinition.ExternalParameters.Snapshot {
				commit += " with changes"
			}
		}
	}
	return subjects, commit, nil
}

// verifyFiles verifies the signed checksums, and every file of a release. The checksums include the provenance and the public
// key.
func verifyFiles(verifier signature.Verifier, release string) error {
	text, err := os.ReadFile(filepath.Join(release, sumsFile))
	if err != nil {
		return err
	}
	signed, err := os.ReadFile(filepath.Join(release, sumsFile+".sig"))
	if err != nil {
		return err
	}
	if err := verifyText(verifier, text, string(signed)); err != nil {
		return fmt.Errorf("%s: %w", sumsFile, err)
	}
	envelope, err := os.ReadFile(filepath.Join(release, provenanceFile))
	if err != nil {
		return err
	}
	subjects, _, err := verifyProvenance(verifier, envelope)
	if err != nil {
		return fmt.Errorf("%s: %w", provenanceFile, err)
	}
	entries, err := os.ReadDir(release)
	if err != nil {
		return err
	}
	count := 0
	for _, entry := range entries {
		name := entry.Name()
		if name == sumsFile || name == sumsFile+".sig" {
			continue
		}
		sum, err := fileSum(filepath.Join(release, name))
		if err != nil {
			return err
		}
		if !bytes.Contains(text, []byte(sum+"  "+name+"\n")) {
			return fmt.Errorf("%s: %s does not contain its SHA-256 %s", name, sumsFile, sum)
		}
		if name != provenanceFile && name != "cosign.pub" && !slices.Contains(subjects, sum) {
			return fmt.Errorf("%s: %s does not contain its SHA-256 %s", name, provenanceFile, sum)
		}
		count++
	}
	if lines := bytes.Count(text, []byte("\n")); lines != count {
		return fmt.Errorf("%s lists %d files, and there are %d", sumsFile, lines, count)
	}
	fmt.Printf("%d files: the checksums and the provenance are verified\n", count)
	return nil
}

// fileSum returns the SHA-256 of a file.
func fileSum(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	sum, _, err := v1.SHA256(file)
	return sum.Hex, errors.Join(err, file.Close())
}
