/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package terminable

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ResetFields names fields by their dotted paths for one version.
func ResetFields(version schema.GroupVersion, paths ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, path := range paths {
		var parts []any
		for part := range strings.SplitSeq(path, ".") {
			parts = append(parts, part)
		}
		set.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): set}
}
