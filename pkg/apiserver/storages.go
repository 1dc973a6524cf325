/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/accessiblenamespace"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/initializerconfiguration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespaceinitializerconfiguration"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/namespacelifecycle"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/population"
	"github.com/nsinit/nsinit/pkg/webhook"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// storages returns the storage of each resource and subresource of the group.
func (c CompletedConfig) storages() (map[string]rest.Storage, error) {
	extra, getter := c.extra, c.generic.RESTOptionsGetter
	checker := authorization.New(c.generic.Authorization.Authorizer)
	storages := map[string]rest.Storage{
		v1alpha1.ResourceInitializers:     &initializers{},
		v1alpha1.ResourceAdmissionReviews: webhook.New(extra.Webhooks),
	}
	add := func(served map[string]rest.Storage, err error) error {
		maps.Copy(storages, served)
		return err
	}
	return storages, errors.Join(
		add(generic.New(namespaceinitializerconfiguration.NewKind(checker, extra.Clock), extra.Scheme, getter)),
		add(generic.New(initializerconfiguration.NewKind(checker, extra.Clock), extra.Scheme, getter)),
		add(namespacelifecycle.New(extra.Scheme, getter, checker, namespacelifecycle.Options{
			Clock:      extra.Clock,
			Identified: extra.Identity.Verify,
			Confirmed:  extra.Identity.Confirm,
		})),
		add(generic.New(population.NewKind(), extra.Scheme, getter)),
		add(generic.New(population.NewPopulatedKind(), extra.Scheme, getter)),
		add(accessiblenamespace.New(extra.Accessible), nil),
	)
}

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
