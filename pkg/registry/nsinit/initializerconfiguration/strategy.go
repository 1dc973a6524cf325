/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializerconfiguration declares the parts of an InitializerConfiguration, which registers
// initializers for pods and Jobs, and which endpoint owns each of them.
package initializerconfiguration

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

type configuration = *nsinit.InitializerConfiguration

// NewKind returns the declaration of InitializerConfigurations. The checker authorizes reports.
func NewKind(checker *authorization.Checker, clock clock.PassiveClock) *generic.Kind[*nsinit.InitializerConfiguration] {
	selection := expressions.NewSelection()
	return &generic.Kind[configuration]{
		Resource: "initializerconfigurations", Singular: "initializerconfiguration", ShortNames: []string{"ic"},
		New:     func() runtime.Object { return &nsinit.InitializerConfiguration{} },
		NewList: func() runtime.Object { return &nsinit.InitializerConfigurationList{} },
		Parts: []generic.Part[configuration]{
			generic.Metadata[configuration](),
			{Name: "initializers", Copy: func(to, from configuration) { to.Initializers = from.Initializers }, Generation: true},
			generic.Reporters[configuration](),
			{Name: "status", Copy: func(to, from configuration) { to.Status = from.Status }},
		},
		Endpoints: map[string]generic.Endpoint[configuration]{
			"":       {Owns: []string{"metadata", "initializers"}, Prepare: func(_ context.Context, updated, _ configuration) { generic.DropUnregistered(updated) }},
			"status": generic.Reports(checker, clock, func(c configuration) any { return c.Status }),
		},
		Create: func(_ context.Context, c configuration) {
			c.Status = v1alpha1.InitializerConfigurationStatus{Conditions: generic.NotObserved(c, "nsinit-controller-manager, with the component objects,")}
		},
		Validate: func(updated, old configuration) field.ErrorList {
			return validation.ValidateInitializerConfiguration(updated, old, selection.Check)
		},
		Table: newTable(),
	}
}

func newTable() *generic.Table[*nsinit.InitializerConfiguration] {
	return &generic.Table[*nsinit.InitializerConfiguration]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the configuration, by which configurations are ordered."},
			{Name: "Initializers", Type: "string", Description: "The initializers, in the order in which they act."},
			{Name: "In Force", Type: "string", Description: "Whether kube-apiserver was observed to hold new objects: True, False or Unknown."},
			{Name: "Served", Type: "string", Description: "Number of initializers that a program serves, of all."},
			{Name: "Pending", Type: "integer", Description: "Number of pods and Jobs that wait for an initializer of this configuration."},
			{Name: "Age", Type: "string", Description: "How long ago the configuration was created."},
		},
		Cells: func(c *nsinit.InitializerConfiguration, age string) []any {
			inForce := metav1.ConditionUnknown
			if condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionInForce); condition != nil {
				inForce = condition.Status
			}
			return []any{c.Name, cmp.Or(strings.Join(c.InitializerNames(), ","), "<none>"), string(inForce), generic.Served(c), int64(c.Status.PendingObjects), age}
		},
	}
}
