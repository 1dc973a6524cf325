/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
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

type configuration = *nsinit.NamespaceInitializerConfiguration

// NewKind returns the declaration of configurations. The checker authorizes participants and reports.
func NewKind(checker *authorization.Checker, clock clock.PassiveClock) *generic.Kind[*nsinit.NamespaceInitializerConfiguration] {
	selection := expressions.NewSelection()
	return &generic.Kind[configuration]{
		Resource: "namespaceinitializerconfigurations", Singular: "namespaceinitializerconfiguration", ShortNames: []string{"nsic"},
		New:     func() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} },
		NewList: func() runtime.Object { return &nsinit.NamespaceInitializerConfigurationList{} },
		Parts: []generic.Part[configuration]{
			generic.Metadata[configuration](),
			{Name: "initializers", Copy: func(to, from configuration) { to.Initializers = from.Initializers }, Generation: true},
			generic.Finalizers[configuration](),
			{Name: "status.phase", Copy: func(to, from configuration) { to.Status.Phase = from.Status.Phase }},
			generic.Reporters[configuration](),
			{Name: "status", Copy: func(to, from configuration) { to.Status = from.Status }},
		},
		Endpoints: map[string]generic.Endpoint[configuration]{
			"":         {Owns: []string{"metadata", "initializers"}, Prepare: func(_ context.Context, updated, _ configuration) { generic.DropUnregistered(updated) }},
			"status":   generic.Reports(checker, clock, func(c configuration) any { return c.Status }),
			"finalize": generic.Finalize(checker, func(configuration) string { return "" }),
		},
		Create: func(_ context.Context, c configuration) {
			c.Status = v1alpha1.NamespaceInitializerConfigurationStatus{Phase: v1alpha1.ConfigurationActive, Conditions: generic.NotObserved(c, "nsinit-controller-manager")}
		},
		Validate: func(updated, old configuration) field.ErrorList {
			return validation.ValidateNamespaceInitializerConfiguration(updated, old, selection.Check)
		},
		Fields:    func(c configuration) fields.Set { return fields.Set{"status.phase": string(c.Status.Phase)} },
		Terminate: func(c configuration) { c.Status.Phase = v1alpha1.ConfigurationTerminating },
		Table:     newTable(),
	}
}
