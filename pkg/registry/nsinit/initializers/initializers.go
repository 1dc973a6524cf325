/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package initializers serves a resource that exists for authorization only: RBAC grants the verbs
// initialize and finalize on the names of initializers. It has no objects and no API verbs. Discovery
// lists it, because kubectl auth can-i gives wrong answers for unknown resources.
package initializers

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// REST is the storage of the resource. It stores nothing.
type REST struct{}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
} = (*REST)(nil)

// New returns an object of a registered type, which every resource needs.
func (*REST) New() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "initializer" }

// Kind is the kind in discovery.
func (*REST) Kind() string { return "Initializer" }
