/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Bounds of the initializers of pods and Jobs. kube-apiserver evaluates all of them for one object with a budget of 10,000,000 of CEL's
// units, and stores all of them in one policy.
const (
	maxInitializers   = 128
	maxSelectionCost  = 1_000_000
	maxSelectionsCost = 5_000_000
	maxSelectionsSize = 512 << 10
	// maxSelectorSize is the size of one selector, whose requirements are one expression: kube-apiserver compiles at most 100,000 characters,
	// and a policy contains the key of a requirement twice.
	maxSelectorSize = 60_000
	// overhead is the size of what a policy has around a condition, or around a requirement of a selector.
	overhead = 200
)

// ValidateObjects refuses initializers of a configuration with which kube-apiserver could refuse every pod or Job, unless it could
// before. The others are those of the other configurations, and former are those that the configuration had.
func ValidateObjects(written, former, others []v1alpha1.Initializer, cost func(expression string) (uint64, error)) field.ErrorList {
	path := field.NewPath("initializers")
	before := weighed{}
	for i := range former {
		before.add(&former[i], cost)
	}
	after := weighed{}
	var errs field.ErrorList
	for i := range written {
		if single := after.add(&written[i], cost); single >= maxSelectionCost && single > before.largest {
			errs = append(errs, field.Invalid(path.Index(i).Child("matchConditions"), written[i].Name,
				fmt.Sprintf("their estimated cost is %d, and must be below %d: remove or simplify conditions", single, maxSelectionCost)))
		}
		if size := sizeOf(written[i].NamespaceSelector); size > max(before.selector, maxSelectorSize) {
			errs = append(errs, field.Invalid(path.Index(i).Child("namespaceSelector"), written[i].Name,
				fmt.Sprintf("its size in bytes is %d, and may be %d: remove values, or give the namespaces a label in common, and select this label", size, maxSelectorSize)))
		}
	}
	for i := range others {
		before.add(&others[i], cost)
		after.add(&others[i], cost)
	}
	for _, sum := range []struct {
		what                 string
		before, after, limit uint64
	}{
		{"number of initializers", before.count, after.count, maxInitializers},
		{"estimated cost of matchConditions", before.cost, after.cost, maxSelectionsCost},
		{"size of matchConditions and namespaceSelectors in bytes", before.size, after.size, maxSelectionsSize},
	} {
		if sum.after > max(sum.before, sum.limit) {
			errs = append(errs, field.Invalid(path, fmt.Sprintf("%d initializers", len(written)),
				fmt.Sprintf("the %s of all InitializerConfigurations is %d, and may be %d: remove initializers, conditions or values", sum.what, sum.after, sum.limit)))
		}
	}
	return errs
}

// weighed is what some initializers cost. The last two are the largest cost of one initializer, and the largest size of one selector.
type weighed struct{ count, cost, size, largest, selector uint64 }

// add returns the cost of one initializer.
func (w *weighed) add(initializer *v1alpha1.Initializer, cost func(expression string) (uint64, error)) (single uint64) {
	for _, condition := range initializer.MatchConditions {
		estimate, err := cost(condition.Expression)
		if err != nil { // an earlier version accepted it
			estimate = expressions.MaxConditionCost
		}
		single += estimate
		w.size += uint64(len(condition.Expression) + overhead)
	}
	selector := sizeOf(initializer.NamespaceSelector)
	w.count, w.cost, w.size = w.count+1, w.cost+single, w.size+selector
	w.largest, w.selector = max(w.largest, single), max(w.selector, selector)
	return single
}

// sizeOf returns the size of a selector in a policy.
func sizeOf(selector *metav1.LabelSelector) (size uint64) {
	if selector == nil {
		return 0
	}
	for key, value := range selector.MatchLabels {
		size += uint64(len(key) + len(value) + overhead)
	}
	for _, requirement := range selector.MatchExpressions {
		size += uint64(len(requirement.Key) + overhead)
		for _, value := range requirement.Values {
			size += uint64(len(value) + len(`"", `))
		}
	}
	return size
}
