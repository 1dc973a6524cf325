/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func after(names ...string) *v1alpha1.InitializerOrdering {
	return &v1alpha1.InitializerOrdering{After: names}
}

// TestValidateOrder: the same rules hold for a configuration and for a plan.
func TestValidateOrder(t *testing.T) {
	const a, b, c = "a.example.com", "b.example.com", "c.example.com"
	for name, test := range map[string]struct {
		orderings [3]*v1alpha1.InitializerOrdering
		want      expected
		message   string
	}{
		"none":              {},
		"immediately":       {orderings: [3]*v1alpha1.InitializerOrdering{after(), after(), after()}},
		"after a later one": {orderings: [3]*v1alpha1.InitializerOrdering{after(c), after(), after()}},
		"after another configuration's, and the built-in one": {orderings: [3]*v1alpha1.InitializerOrdering{0: after("x.example.com", v1alpha1.InitializerLifecycle)}},
		"wrong names": {orderings: [3]*v1alpha1.InitializerOrdering{1: after("x", a, "")},
			want: expected{"[1].ordering.after[0]": field.ErrorTypeInvalid, "[1].ordering.after[2]": field.ErrorTypeInvalid}},
		"itself": {orderings: [3]*v1alpha1.InitializerOrdering{1: after(b)}, want: expected{"[1].ordering.after[0]": field.ErrorTypeInvalid},
			message: `"b.example.com": an initializer cannot wait for itself: remove the name`},
		"a cycle": {orderings: [3]*v1alpha1.InitializerOrdering{after(c), after(), after(b, a)}, want: expected{"[0].ordering.after": field.ErrorTypeInvalid},
			message: `["c.example.com"]: the initializers wait for each other: "a.example.com" waits for "c.example.com", "c.example.com" waits for "a.example.com": ` +
				`remove one of these names, or set ordering of an initializer that has none`},
		"a cycle with one that has no ordering": {orderings: [3]*v1alpha1.InitializerOrdering{after(b)}, want: expected{"[0].ordering.after": field.ErrorTypeInvalid},
			message: `["b.example.com"]: the initializers wait for each other: "a.example.com" waits for "b.example.com", "b.example.com" has no ordering and so waits for "a.example.com": ` +
				`remove one of these names, or set ordering of an initializer that has none`},
	} {
		t.Run(name, func(t *testing.T) {
			registered := configuration(func(c *nsinit.NamespaceInitializerConfiguration) { c.Initializers = nil })
			planned := record(func(r *nsinit.NamespaceLifecycle) { r.Spec.Initializers = nil })
			for i, name := range []string{a, b, c} {
				registered.Initializers = append(registered.Initializers, v1alpha1.RegisteredInitializer{Name: name, Ordering: test.orderings[i]})
				planned.Spec.Plan[i].Ordering = test.orderings[i]
			}
			for path, errs := range map[string]field.ErrorList{
				"initializers": ValidateNamespaceInitializerConfiguration(registered, nil, valid), "spec.plan": ValidateNamespaceLifecycle(planned, nil),
			} {
				want := expected{}
				for field, kind := range test.want {
					want[path+field] = kind
				}
				checkErrors(t, errs, want)
				if test.message != "" && !strings.HasSuffix(errs.ToAggregate().Error(), test.message) {
					t.Errorf("got %v\nwant %s", errs.ToAggregate(), test.message)
				}
			}
		})
	}
}

// TestValidateParallel: any initializer that waits for no pending one can leave or fail.
func TestValidateParallel(t *testing.T) {
	const a, b, c, list, failure = "a.example.com", "b.example.com", "c.example.com", "spec.initializers.pending", "spec.initializers.failedInitializer"
	failing := func(name string, names ...string) *v1alpha1.NamespaceInitializers {
		initializers := failed(names...)
		initializers.FailedInitializer = name
		return initializers
	}
	for name, test := range map[string]struct {
		old, updated *v1alpha1.NamespaceInitializers
		want         expected
	}{
		"the first leaves":                   {pending(a, b, c), pending(b, c), nil},
		"the second leaves":                  {pending(a, b, c), pending(a, c), nil},
		"all leave":                          {pending(a, b, c), nil, nil},
		"the one after them leaves":          {pending(a, b, c), pending(a, b), expected{list: field.ErrorTypeInvalid}},
		"one leaves with the one after them": {pending(a, b, c), pending(b), expected{list: field.ErrorTypeInvalid}},
		"the order changes":                  {pending(a, b, c), pending(b, a, c), expected{list: field.ErrorTypeInvalid}},
		"the second fails":                   {pending(a, b, c), failing(b, a, b, c), nil},
		"no name fails":                      {pending(a, b, c), failing("", a, b, c), expected{failure: field.ErrorTypeRequired}},
		"the one after them fails":           {pending(a, b, c), failing(c, a, b, c), expected{failure: field.ErrorTypeInvalid}},
		"one that is done fails":             {pending(b, c), failing(a, b, c), expected{failure: field.ErrorTypeInvalid}},
		"another one failed":                 {failing(a, a, b, c), failing(b, a, b, c), expected{failure: field.ErrorTypeForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(initializers *v1alpha1.NamespaceInitializers) *nsinit.NamespaceLifecycle {
				return record(func(r *nsinit.NamespaceLifecycle) {
					r.Spec.Plan[0].Ordering, r.Spec.Plan[1].Ordering, r.Spec.Initializers = after(), after(), initializers
				})
			}
			checkErrors(t, ValidateInitialize(with(test.updated), with(test.old)), test.want)
		})
	}
}
