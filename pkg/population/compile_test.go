/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestCompiler: each version of a population is compiled once, until the population is forgotten.
func TestCompiler(t *testing.T) {
	var c Compiler
	compile := func(uid string, scope v1alpha1.PopulationScopeType) *Population {
		p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(uid), Generation: 1}, Spec: v1alpha1.NamespacePopulationSpec{Scope: scope}}
		compiled, err := c.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	first := compile("u", v1alpha1.ScopeNew)
	if compile("u", v1alpha1.ScopeNew) != first || compile("v", v1alpha1.ScopeNew) == first || compile("u", v1alpha1.ScopeAll) == first {
		t.Error("a version was compiled twice, or another one was not")
	}
	second := compile("v", v1alpha1.ScopeNew)
	c.Retain([]v1alpha1.NamespacePopulation{{ObjectMeta: metav1.ObjectMeta{UID: "v"}}})
	if compile("v", v1alpha1.ScopeNew) != second || len(c.known) != 1 {
		t.Errorf("%d populations are known", len(c.known))
	}
}
