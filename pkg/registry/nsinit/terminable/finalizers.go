/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package terminable

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/authorization"
)

// InjectFinalizer puts "kubernetes" into the spec.finalizers of a new object, after
// what the creator gave and only if it is not there. Where the creator placed it, it
// stays.
func InjectFinalizer(object nsinit.Terminable) {
	finalizers := object.SpecFinalizers()
	if !slices.Contains(finalizers, nsinit.FinalizerKubernetes) {
		object.SetSpecFinalizers(append(slices.Clone(finalizers), nsinit.FinalizerKubernetes))
	}
}

// ShouldDeleteDuringUpdate lets the write that empties spec.finalizers of a deleted
// object remove it from storage.
func ShouldDeleteDuringUpdate(ctx context.Context, key string, updated, existing runtime.Object) bool {
	object, ok := updated.(nsinit.Terminable)
	return ok && len(object.SpecFinalizers()) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, updated, existing)
}

// AuthorizeFinalize returns the authorization of the finalize subresource: a participant
// removes its own name, and only the privileged add one.
func AuthorizeFinalize(checker *authorization.Checker) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, updated, old runtime.Object) error {
		before, after := old.(nsinit.Terminable).SpecFinalizers(), updated.(nsinit.Terminable).SpecFinalizers()
		for _, name := range before {
			if slices.Contains(after, name) {
				continue
			}
			if err := checker.MayFinalize(ctx, string(name)); err != nil {
				return fmt.Errorf("spec.finalizers: cannot remove %q: %w", name, err)
			}
		}
		for _, name := range after {
			if slices.Contains(before, name) {
				continue
			}
			if err := checker.MayOpen(ctx, namespaceOf(updated)); err != nil {
				return fmt.Errorf("spec.finalizers: cannot add %q after creation: %w", name, err)
			}
		}
		return nil
	}
}

// FinalizeAudit tells who was removed from spec.finalizers.
func FinalizeAudit(updated, old runtime.Object) map[string]string {
	after := updated.(nsinit.Terminable).SpecFinalizers()
	var removed []string
	for _, name := range old.(nsinit.Terminable).SpecFinalizers() {
		if !slices.Contains(after, name) {
			removed = append(removed, string(name))
		}
	}
	if len(removed) == 0 {
		return nil
	}
	return map[string]string{v1alpha1.AuditRemovedFinalizers: strings.Join(removed, ",")}
}

// namespaceOf returns the namespace that a privilege over an object is asked for: a
// record's own, and all of them for what concerns all.
func namespaceOf(object runtime.Object) string {
	if _, ok := object.(*nsinit.NamespaceLifecycle); !ok {
		return ""
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}
