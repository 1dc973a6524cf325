/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package storage serves configurations from etcd: the main resource and its
// subresources.
package storage

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverregistry "k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespaceinitializerconfiguration"
)

// New returns the storage of configurations. The checker answers who may finalize, the
// gate which features are on.
func New(scheme *runtime.Scheme, getter apiserverregistry.RESTOptionsGetter, checker *authorization.Checker, gate featuregate.FeatureGate, clock clock.PassiveClock) (*generic.Storage, error) {
	kind := namespaceinitializerconfiguration.NewKind(checker, gate)
	kind.Table = newTable(clock)
	return generic.New(kind, scheme, getter)
}

func newTable(clock clock.PassiveClock) *generic.Table[*nsinit.NamespaceInitializerConfiguration] {
	return &generic.Table[*nsinit.NamespaceInitializerConfiguration]{
		Clock: clock,
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the configuration, by which configurations are ordered."},
			{Name: "Phase", Type: "string", Description: "Active or Terminating."},
			{Name: "Initializers", Type: "string", Description: "The initializers, in the order in which they act."},
			{Name: "Pending", Type: "integer", Description: "Number of namespaces that wait for an initializer of this configuration."},
			{Name: "Age", Type: "string", Description: "How long ago the configuration was created."},
			{Name: "Finalizers", Type: "string", Priority: 1, Description: "Who must have acted before the configuration leaves."},
		},
		Cells: func(configuration *nsinit.NamespaceInitializerConfiguration, now time.Time) []any {
			var initializers, finalizers []string
			for _, initializer := range configuration.Initializers {
				initializers = append(initializers, initializer.Name)
			}
			for _, finalizer := range configuration.Spec.Finalizers {
				finalizers = append(finalizers, string(finalizer))
			}
			return []any{configuration.Name, string(configuration.Status.Phase), joined(initializers),
				int64(configuration.Status.PendingNamespaces), generic.Since(configuration.CreationTimestamp.Time, now), joined(finalizers)}
		},
	}
}

func joined(names []string) string {
	if len(names) == 0 {
		return "<none>"
	}
	return strings.Join(names, ",")
}
