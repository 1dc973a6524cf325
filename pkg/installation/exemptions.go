/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package installation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// Exemptions is the ConfigMap that lists the exempt namespaces.
	Exemptions = "nsinit-exemptions"
	// ExemptionsKey is the key of the ConfigMap with the names, one on each line.
	ExemptionsKey = "namespaces"

	// RemovedNamespaces is the ConfigMap that lists the names for which no namespace can be created yet.
	RemovedNamespaces = "nsinit-removed-namespaces"
)

// Exempt returns the names in the list of exempt namespaces.
func Exempt(configMap *corev1.ConfigMap) sets.Set[string] {
	names := sets.New[string]()
	for line := range strings.SplitSeq(configMap.Data[ExemptionsKey], "\n") {
		if line != "" {
			names.Insert(line)
		}
	}
	return names
}
