/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespacedname reads the NAMESPACE/NAME of an object from a flag.
package namespacedname

import (
	"fmt"
	"strings"
)

// Parse splits NAMESPACE/NAME.
func Parse(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is not the name of an object: use NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}
