/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage serves the records of populated namespaces from etcd.
package storage

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/observable"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/table"
)

// New returns the storage of the records.
func New(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, clock clock.PassiveClock) (*observable.Storage, error) {
	type kind = *nsinit.PopulatedNamespace
	return observable.New(observable.Kind[kind]{
		Resource: "populatednamespaces", Singular: "populatednamespace", ShortNames: []string{"popns"},
		New:        func() runtime.Object { return &nsinit.PopulatedNamespace{} },
		NewList:    func() runtime.Object { return &nsinit.PopulatedNamespaceList{} },
		KeepSpec:   func(to, from kind) { to.Spec = from.Spec },
		KeepStatus: func(to, from kind) { to.Status = from.Status },
		SameSpec:   func(a, b kind) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
		Validate:   validation.ValidatePopulatedNamespace,
		Table:      newTable(clock),
	}, scheme, getter)
}

func newTable(clock clock.PassiveClock) *table.Convertor[*nsinit.PopulatedNamespace] {
	return &table.Convertor[*nsinit.PopulatedNamespace]{
		Clock: clock,
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace."},
			{Name: "Applied", Type: "string", Description: "How many of the objects were applied."},
			{Name: "Age", Type: "string", Description: "How long ago the first of them was to be applied."},
			{Name: "Message", Type: "string", Priority: 1, Description: "What is in the way."},
		},
		Cells: func(p *nsinit.PopulatedNamespace, now time.Time) []any {
			applied, message := 0, ""
			for _, o := range p.Status.Objects {
				if o.State == nsinit.PopulatedObjectApplied {
					applied++
				} else if message == "" && o.Message != "" {
					message = fmt.Sprintf("%s/%s: %s", o.Population, o.Manifest, o.Message)
				}
			}
			return []any{p.Name, fmt.Sprintf("%d/%d", applied, len(p.Status.Objects)), table.Since(p.CreationTimestamp.Time, now), message}
		},
	}
}
