/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package terminable

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
)

// Strategy is what the strategies of both kinds have in common. They are cluster-scoped,
// and validated by what is generated from their tags, too.
type Strategy struct {
	rest.DeclarativeValidation
	names.NameGenerator
}

// NewStrategy returns the common strategy. The scheme holds the generated validation.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{rest.DeclarativeValidation{Scheme: scheme}, names.SimpleNameGenerator}
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (Strategy) NamespaceScoped() bool { return false }

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate refuses updates without a resourceVersion: they could hit a
// later incarnation of the same name.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
