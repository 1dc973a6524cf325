/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespaceinitializerconfiguration

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
)

func newTable() *generic.Table[*nsinit.NamespaceInitializerConfiguration] {
	return &generic.Table[*nsinit.NamespaceInitializerConfiguration]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the configuration, by which configurations are ordered."},
			{Name: "Phase", Type: "string", Description: "Active or Terminating."},
			{Name: "Initializers", Type: "string", Description: "The initializers, in the order in which they act."},
			{Name: "Served", Type: "string", Description: "Number of initializers that a program serves, of all."},
			{Name: "Pending", Type: "integer", Description: "Number of namespaces that wait for an initializer of this configuration."},
			{Name: "Age", Type: "string", Description: "How long ago the configuration was created."},
			{Name: "Finalizers", Type: "string", Priority: 1, Description: "The participants that must act before the configuration is removed."},
		},
		Cells: func(c *nsinit.NamespaceInitializerConfiguration, age string) []any {
			var finalizers []string
			for _, finalizer := range c.Spec.Finalizers {
				finalizers = append(finalizers, string(finalizer))
			}
			return []any{c.Name, string(c.Status.Phase), cmp.Or(strings.Join(c.InitializerNames(), ","), "<none>"), generic.Served(c),
				int64(c.Status.PendingNamespaces), age, cmp.Or(strings.Join(finalizers, ","), "<none>")}
		},
	}
}
