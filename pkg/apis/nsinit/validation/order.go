/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/order"
)

// validateOrder checks that initializers name others that can act before them. The built-in initializer may be named:
// all others wait for it in any case.
func validateOrder(initializers []v1alpha1.RegisteredInitializer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var entries []order.Entry
	for i, initializer := range initializers {
		entries = append(entries, helper.OrderOf(&initializer))
		if initializer.Ordering == nil {
			continue
		}
		for j, name := range initializer.Ordering.After {
			at := path.Index(i).Child("ordering", "after").Index(j)
			if name == initializer.Name {
				errs = append(errs, field.Invalid(at, name, "an initializer cannot wait for itself: remove the name"))
				continue
			}
			for _, problem := range helper.ValidateInitializerName(name) {
				errs = append(errs, field.Invalid(at, name, problem))
			}
		}
	}
	return append(errs, validateNoCycle(entries, path)...)
}

// validateNoCycle reports a cycle at an initializer of it that waits for a later one.
func validateNoCycle(entries []order.Entry, path *field.Path) field.ErrorList {
	cycle := order.Cycle(entries)
	if cycle == nil {
		return nil
	}
	i := slices.IndexFunc(entries, func(e order.Entry) bool { return e.Name == cycle[0] })
	return field.ErrorList{field.Invalid(path.Index(i).Child("ordering", "after"), entries[i].After,
		fmt.Sprintf("%s: remove one of these names, or set ordering of an initializer that has none", order.Explain(entries, cycle)))}
}
