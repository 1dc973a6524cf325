/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package plan

import (
	"fmt"

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

// weighed is what some initializers cost.
type weighed struct{ count, cost, size, largest uint64 }

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
	if selector := initializer.NamespaceSelector; selector != nil {
		for key, value := range selector.MatchLabels {
			w.size += uint64(len(key) + len(value) + overhead)
		}
		for _, requirement := range selector.MatchExpressions {
			w.size += uint64(len(requirement.Key) + overhead)
			for _, value := range requirement.Values {
				w.size += uint64(len(value) + len(`"", `))
			}
		}
	}
	w.count, w.cost, w.largest = w.count+1, w.cost+single, max(w.largest, single)
	return single
}
