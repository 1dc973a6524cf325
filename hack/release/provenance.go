/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	attestation "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	predicateType  = "https://slsa.dev/provenance/v1"
	buildType      = home + "/blob/main/docs/release.md#build"
	builder        = home + "/blob/main/docs/release.md#builders"
	provenanceFile = "provenance.intoto.jsonl"
	sumsFile       = "SHA256SUMS"
	publicKeyFile  = "cosign.pub"
)

func subject(name, sha256 string) *attestation.ResourceDescriptor {
	return &attestation.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sha256}}
}

// statement returns the in-toto statement that says how the subjects were built.
func (r *release) statement(subjects ...*attestation.ResourceDescriptor) ([]byte, error) {
	var platforms []any
	for _, platform := range r.built {
		platforms = append(platforms, platform)
	}
	predicate, err := structpb.NewStruct(map[string]any{
		"buildDefinition": map[string]any{
			"buildType": buildType,
			"externalParameters": map[string]any{
				"source": "git+" + home, "version": r.version, "repository": r.repository, "platforms": platforms, "snapshot": r.snapshot,
			},
			"internalParameters": map[string]any{"go": runtime.Version()},
			"resolvedDependencies": []any{
				map[string]any{"name": "source", "uri": "git+" + home + "@" + r.commit, "digest": map[string]any{"gitCommit": r.commit}},
			},
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": builder}},
	})
	if err != nil {
		return nil, err
	}
	statement := &attestation.Statement{Type: attestation.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := statement.Validate(); err != nil {
		return nil, err
	}
	data, err := protojson.Marshal(statement)
	if err != nil {
		return nil, err
	}
	var stable bytes.Buffer // protojson adds random spaces
	err = json.Compact(&stable, data)
	return stable.Bytes(), err
}

// sums returns the SHA-256 of each file of the release.
func (r *release) sums() (map[string]string, error) {
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.output, entry.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		sums[entry.Name()] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

// provenance writes the provenance of all files: as a signed envelope or, without a key, as the statement itself.
func (r *release) provenance() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var subjects []*attestation.ResourceDescriptor
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, subject(name, sums[name]))
	}
	statement, err := r.statement(subjects...)
	if err != nil {
		return err
	}
	if r.key == nil {
		return r.write("provenance.json", append(statement, '\n'))
	}
	envelope, err := r.key.envelope(statement)
	if err != nil {
		return err
	}
	return r.write(provenanceFile, append(envelope, '\n'))
}

// checksums writes the checksums of all files, with their signature and the public key.
func (r *release) checksums() error {
	if r.key != nil {
		public, err := r.key.public()
		if err != nil {
			return err
		}
		if err := r.write(publicKeyFile, public); err != nil {
			return err
		}
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	if err := r.write(sumsFile, text.Bytes()); err != nil || r.key == nil {
		return err
	}
	signed, err := r.key.sign(text.Bytes())
	if err != nil {
		return err
	}
	return r.write(sumsFile+".sig", []byte(signed+"\n"))
}
