/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package rest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
)

// initializers serves a resource that exists for authorization only: RBAC grants the verbs initialize and finalize on the names of
// initializers. It has no objects and no API verbs. Discovery lists it, because kubectl auth can-i gives wrong answers for unknown
// resources.
type initializers struct{}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
} = (*initializers)(nil)

// New returns an object of a registered type, which every resource needs.
func (*initializers) New() runtime.Object { return &nsinit.NamespaceInitializerConfiguration{} }

// Destroy implements rest.Storage.
func (*initializers) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*initializers) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*initializers) GetSingularName() string { return "initializer" }

// Kind is the kind in discovery.
func (*initializers) Kind() string { return "Initializer" }
