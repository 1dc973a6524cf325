/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestValidateObjects: a write cannot make kube-apiserver refuse every object, and a configuration that could do so may get smaller.
func TestValidateObjects(t *testing.T) {
	cost := func(expression string) (uint64, error) {
		if expression == "refused" {
			return 0, errors.New("refused")
		}
		return strconv.ParseUint(strings.TrimSpace(expression), 10, 64)
	}
	of := func(count int, conditions ...string) (all []v1alpha1.Initializer) {
		for range count {
			initializer := v1alpha1.Initializer{Name: "a.example.com"}
			for _, condition := range conditions {
				initializer.MatchConditions = append(initializer.MatchConditions, v1alpha1.MatchCondition{Expression: condition})
			}
			all = append(all, initializer)
		}
		return all
	}
	selecting := func(count, size int) []v1alpha1.Initializer {
		all := of(count)
		for i := range all {
			all[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: slices.Repeat([]string{strings.Repeat("v", 60)}, size)}}}
		}
		return all
	}
	for name, test := range map[string]struct {
		written, former, others []v1alpha1.Initializer
		field                   string
	}{
		"nothing":                 {nil, nil, of(200, "1"), ""},
		"many":                    {of(28), nil, of(100), ""},
		"too many":                {of(29), nil, of(100), "initializers"},
		"fewer than before":       {of(29), of(30), of(100), ""},
		"costly":                  {of(1, "999999"), nil, nil, ""},
		"two costly conditions":   {of(1, "500000", "500000"), nil, nil, "initializers[0].matchConditions"},
		"refused by this version": {of(1, "refused"), nil, nil, "initializers[0].matchConditions"},
		"as before":               {of(1, "refused"), of(1, "refused"), nil, ""},
		"costly together":         {of(1, "600000"), nil, of(8, "600000"), "initializers"},
		"the limit together":      {of(1, "200000"), nil, of(8, "600000"), ""},
		"long selectors":          {selecting(10, 900), nil, nil, "initializers"},
		"a long selector":         {selecting(1, 900), nil, nil, ""},
		"too long a selector":     {selecting(1, 1000), nil, nil, "initializers[0].namespaceSelector"},
		"a shorter selector":      {selecting(1, 1000), selecting(1, 1001), nil, ""},
		"long":                    {of(1, strings.Repeat(" ", 16<<10)+"1"), nil, of(32, strings.Repeat(" ", 16<<10)+"1"), "initializers"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ValidateObjects(test.written, test.former, test.others, cost)
			if len(errs) > 1 || (len(errs) == 1) != (test.field != "") || len(errs) == 1 && errs[0].Field != test.field {
				t.Error(errs)
			}
		})
	}
}
