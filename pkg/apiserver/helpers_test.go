/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
)

var names atomic.Int64 //nolint:gochecknoglobals // makes names of tests unique

// uniqueName returns a name that no other test of the package uses.
func uniqueName() string { return fmt.Sprintf("ns-%d", names.Add(1)) }

func orMain(endpoint string) string {
	if endpoint == "" {
		return "the main resource"
	}
	return endpoint
}

func mustJSON(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

func mustObject(data []byte) map[string]any {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		panic(err)
	}
	return object
}
