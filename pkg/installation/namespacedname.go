/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package installation

import (
	"fmt"
	"strings"
)

// ParseNamespacedName splits NAMESPACE/NAME.
func ParseNamespacedName(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is not the name of an object: use NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}
