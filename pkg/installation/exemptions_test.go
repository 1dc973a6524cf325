/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package installation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestExempt: the policies split the list at line breaks and compare whole lines, so nothing
// else may be made of it here.
func TestExempt(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"lines":        {"a\nb\n", []string{"a", "b"}},
		"empty lines":  {"\na\n\n\nb", []string{"a", "b"}},
		"empty":        {"", []string{}},
		"a space":      {"a \nb", []string{"a ", "b"}},
		"several same": {"a\na", []string{"a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sets.List(Exempt(&corev1.ConfigMap{Data: map[string]string{ExemptionsKey: test.text}}))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if names := Exempt(&corev1.ConfigMap{}); names.Len() != 0 {
		t.Errorf("a ConfigMap without the key lists %v", names)
	}
}
