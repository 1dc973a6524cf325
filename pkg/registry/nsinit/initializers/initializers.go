/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializers is the resource that exists for authorization alone: its names are
// those of initializers, and RBAC grants the verbs initialize and finalize on them. It has no
// objects, and no verb of the API. It is there for discovery, without which kubectl auth can-i
// would not know its group, and answer wrongly.
package initializers

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// REST is the storage of the resource, of which there is nothing to store.
type REST struct{}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
} = (*REST)(nil)

// New returns an object of a registered type, as every resource has one.
func (*REST) New() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} }

// Destroy releases nothing.
func (*REST) Destroy() {}

// NamespaceScoped says that the resource is cluster-scoped.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName returns the name of one.
func (*REST) GetSingularName() string { return "initializer" }

// Kind is what discovery tells of it.
func (*REST) Kind() string { return "Initializer" }
