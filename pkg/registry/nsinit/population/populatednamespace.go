/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// NewPopulatedKind returns the declaration of PopulatedNamespaces.
func NewPopulatedKind() *generic.Kind[*nsinit.PopulatedNamespace] {
	type object = *nsinit.PopulatedNamespace
	kind := specAndStatus(func(to, from object) { to.Spec = from.Spec }, func(to, from object) { to.Status = from.Status })
	kind.Resource, kind.Singular, kind.ShortNames = "populatednamespaces", "populatednamespace", []string{"popns"}
	kind.New = func() runtime.Object { return &nsinit.PopulatedNamespace{} }
	kind.NewList = func() runtime.Object { return &nsinit.PopulatedNamespaceList{} }
	// The creator announces the objects that it is about to apply.
	kind.Create = func(_ context.Context, created object) {
		created.Status.Conditions = generic.NotObserved(created, initializer)
	}
	kind.Validate, kind.Table = validation.ValidatePopulatedNamespace, newPopulatedTable()
	return kind
}

func newPopulatedTable() *generic.Table[*nsinit.PopulatedNamespace] {
	return &generic.Table[*nsinit.PopulatedNamespace]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Applied", Type: "string", Description: "How many of the objects were applied."},
			{Name: "Age", Type: "string", Description: "How long ago the PopulatedNamespace was created."},
			{Name: "Message", Type: "string", Priority: 1, Description: "The first error."},
		},
		Cells: func(p *nsinit.PopulatedNamespace, age string) []any {
			applied, message := 0, ""
			for _, o := range p.Status.Objects {
				if o.State == v1alpha1.PopulatedObjectApplied {
					applied++
				} else if message == "" && o.Message != "" {
					message = fmt.Sprintf("%s/%s: %s", o.Population, o.Manifest, o.Message)
				}
			}
			return []any{p.Name, fmt.Sprintf("%d/%d", applied, len(p.Status.Objects)), age, message}
		},
	}
}
