/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"cmp"
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/features"
	"github.com/nsinit/nsinit/pkg/registry/generic"
)

type configuration = *nsinit.NamespaceInitializerConfiguration

// NewKind returns the declaration of configurations. The checker authorizes participants. The gate
// decides whether a new initializer can have the failurePolicy Fail.
func NewKind(checker *authorization.Checker, gate featuregate.FeatureGate) *generic.Kind[*nsinit.NamespaceInitializerConfiguration] {
	return &generic.Kind[configuration]{
		Resource: "namespaceinitializerconfigurations", Singular: "namespaceinitializerconfiguration", ShortNames: []string{"nsic"},
		New:     func() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} },
		NewList: func() runtime.Object { return &nsinit.NamespaceInitializerConfigurationList{} },
		Parts: []generic.Part[configuration]{
			generic.Metadata[configuration](),
			{Name: "initializers", Copy: func(to, from configuration) { to.Initializers = from.Initializers }, Generation: true},
			generic.Finalizers[configuration](),
			{Name: "status.phase", Copy: func(to, from configuration) { to.Status.Phase = from.Status.Phase }},
			{Name: "status", Copy: func(to, from configuration) { to.Status = from.Status }},
		},
		Endpoints: map[string]generic.Endpoint[configuration]{
			"":         {Owns: []string{"metadata", "initializers"}},
			"status":   {Owns: []string{"status"}},
			"finalize": generic.Finalize(checker, func(configuration) string { return "" }),
		},
		Create: func(_ context.Context, c configuration) {
			c.Status = nsinit.NamespaceInitializerConfigurationStatus{Phase: nsinit.ConfigurationActive}
		},
		Validate:  validate(gate.Enabled(features.FailPolicyOnCreate)),
		Fields:    func(c configuration) fields.Set { return fields.Set{"status.phase": string(c.Status.Phase)} },
		Terminate: func(c configuration) { c.Status.Phase = nsinit.ConfigurationTerminating },
		Table:     newTable(),
	}
}

func validate(allowFail bool) func(updated, old configuration) field.ErrorList {
	return func(updated, old configuration) field.ErrorList {
		var errs field.ErrorList
		if old == nil {
			errs = validation.ValidateNamespaceInitializerConfiguration(updated)
		} else {
			errs = validation.ValidateNamespaceInitializerConfigurationUpdate(updated, old)
		}
		if !allowFail {
			errs = append(errs, validation.ValidateFailOpen(updated, old)...)
		}
		return errs
	}
}

func newTable() *generic.Table[*nsinit.NamespaceInitializerConfiguration] {
	return &generic.Table[*nsinit.NamespaceInitializerConfiguration]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the configuration, by which configurations are ordered."},
			{Name: "Phase", Type: "string", Description: "Active or Terminating."},
			{Name: "Initializers", Type: "string", Description: "The initializers, in the order in which they act."},
			{Name: "Pending", Type: "integer", Description: "Number of namespaces that wait for an initializer of this configuration."},
			{Name: "Age", Type: "string", Description: "How long ago the configuration was created."},
			{Name: "Finalizers", Type: "string", Priority: 1, Description: "The participants that must act before the configuration is removed."},
		},
		Cells: func(c *nsinit.NamespaceInitializerConfiguration, age string) []any {
			var initializers, finalizers []string
			for _, initializer := range c.Initializers {
				initializers = append(initializers, initializer.Name)
			}
			for _, finalizer := range c.Spec.Finalizers {
				finalizers = append(finalizers, string(finalizer))
			}
			return []any{c.Name, string(c.Status.Phase), cmp.Or(strings.Join(initializers, ","), "<none>"),
				int64(c.Status.PendingNamespaces), age, cmp.Or(strings.Join(finalizers, ","), "<none>")}
		},
	}
}
