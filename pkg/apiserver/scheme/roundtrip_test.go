/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package scheme

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/fuzzer"
)

// TestRoundTrip encodes and decodes random objects of every kind and version, as JSON,
// YAML, CBOR and protobuf, and through the internal version.
func TestRoundTrip(t *testing.T) {
	roundtrip.RoundTripTestForAPIGroup(t, install, fuzzer.Funcs)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install, fuzzer.Funcs)
}
