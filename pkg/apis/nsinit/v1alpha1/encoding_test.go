/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestPlannedInitializerEncoding: the numbers of the fields are those that v0.0 stored, unknown fields are skipped, and
// a damaged message is an error.
func TestPlannedInitializerEncoding(t *testing.T) {
	planned := PlannedInitializer{
		RegisteredInitializer: RegisteredInitializer{Name: "a.example.com", FailurePolicy: new(Ignore), TimeoutSeconds: new(int32(30)), Finalizer: true},
		Configuration:         &ConfigurationReference{Name: "c", UID: "u"},
	}
	encoded, err := planned.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	reference, err := planned.Configuration.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	want = protowire.AppendString(protowire.AppendTag(want, 1, protowire.BytesType), "a.example.com")
	want = protowire.AppendBytes(protowire.AppendTag(want, 2, protowire.BytesType), reference)
	want = protowire.AppendString(protowire.AppendTag(want, 3, protowire.BytesType), "Ignore")
	want = protowire.AppendVarint(protowire.AppendTag(want, 4, protowire.VarintType), 30)
	want = protowire.AppendVarint(protowire.AppendTag(want, 5, protowire.VarintType), 1)
	if !reflect.DeepEqual(encoded, want) {
		t.Errorf("encoded as %x, want %x", encoded, want)
	}
	buffer := make([]byte, len(encoded)+3)
	if n, err := planned.MarshalTo(buffer); err != nil || n != len(encoded) || !reflect.DeepEqual(buffer[:n], encoded) {
		t.Errorf("MarshalTo: %d bytes %x, %v", n, buffer, err)
	}
	if _, err := planned.MarshalToSizedBuffer(buffer[:len(encoded)-1]); err == nil {
		t.Error("a buffer that is too small is no error")
	}

	var decoded PlannedInitializer
	if err := decoded.Unmarshal(protowire.AppendVarint(protowire.AppendTag(encoded, 99, protowire.VarintType), 1)); err != nil || !reflect.DeepEqual(decoded, planned) {
		t.Errorf("decoded %+v, %v", decoded, err)
	}
	for name, damaged := range map[string][]byte{
		"cut off":                   want[:len(want)-1],
		"cut off in configuration":  want[:20],
		"configuration is a number": protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1),
		"name is a number":          protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1),
	} {
		if err := new(PlannedInitializer).Unmarshal(damaged); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
