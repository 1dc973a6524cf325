/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TerminableObject is an object of a kind that is deleted in two steps.
type TerminableObject interface {
	Object
	nsinit.Terminable
}

const partFinalizers = "spec.finalizers"

// Finalizers returns the part that the endpoint finalize owns.
func Finalizers[T TerminableObject]() Part[T] {
	return Part[T]{Name: partFinalizers, Copy: func(to, from T) { *to.SpecFinalizers() = *from.SpecFinalizers() }}
}

// Finalize returns the endpoint finalize. A participant removes its own name, and a user who may
// open the namespace that namespaceOf returns adds names. An empty namespace stands for all. As in the
// design of namespaces, a POST is possible, too.
func Finalize[T TerminableObject](checker *authorization.Checker, namespaceOf func(T) string) Endpoint[T] {
	return Endpoint[T]{
		Owns:     []string{partFinalizers},
		Postable: true,
		Validate: func(updated, old T) field.ErrorList {
			return validation.ValidateFinalize(*updated.SpecFinalizers(), *old.SpecFinalizers())
		},
		Authorize: func(ctx context.Context, updated, old T) error {
			for _, name := range missing(updated, old) {
				if err := checker.MayFinalize(ctx, name); err != nil {
					return fmt.Errorf("spec.finalizers: cannot remove %q: %w", name, err)
				}
			}
			for _, name := range missing(old, updated) {
				if err := checker.MayOpen(ctx, namespaceOf(updated)); err != nil {
					return fmt.Errorf("spec.finalizers: cannot add %q after creation: %w", name, err)
				}
			}
			return nil
		},
	}
}

// FinalizeAudit returns the annotation of the audit log that names the removed finalizers.
func FinalizeAudit[T TerminableObject](updated, old T) map[string]string {
	removed := missing(updated, old)
	if len(removed) == 0 {
		return nil
	}
	return map[string]string{v1alpha1.AuditRemovedFinalizers: strings.Join(removed, ",")}
}

// missing returns the finalizers of one object that another one does not have.
func missing(object, from nsinit.Terminable) []string {
	var names []string
	for _, name := range *from.SpecFinalizers() {
		if !slices.Contains(*object.SpecFinalizers(), name) {
			names = append(names, string(name))
		}
	}
	return names
}

// injectFinalizer appends "kubernetes" to the spec.finalizers of a new object, unless the creator
// placed it.
func injectFinalizer(object nsinit.Terminable) {
	if finalizers := object.SpecFinalizers(); !slices.Contains(*finalizers, v1alpha1.FinalizerKubernetes) {
		*finalizers = append(slices.Clone(*finalizers), v1alpha1.FinalizerKubernetes)
	}
}

// shouldDeleteDuringUpdate lets the write that empties spec.finalizers of a deleted object remove
// it from storage.
func shouldDeleteDuringUpdate(ctx context.Context, key string, updated, existing runtime.Object) bool {
	return len(*updated.(nsinit.Terminable).SpecFinalizers()) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, updated, existing)
}
