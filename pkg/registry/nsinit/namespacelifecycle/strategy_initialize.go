/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
)

// InitializeStrategy is the strategy of the initialize subresource, the only way to
// change spec.initializers and spec.skipped after creation. The status that follows is
// part of the same write.
type InitializeStrategy struct {
	*Strategy
}

// NewInitializeStrategy returns the strategy of the initialize subresource.
func NewInitializeStrategy(strategy *Strategy) *InitializeStrategy {
	return &InitializeStrategy{strategy}
}

// GetResetFields names what this endpoint ignores of an update.
func (*InitializeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("metadata", "status", "spec.namespaceUID", "spec.plan", "spec.finalizers", "spec.initializers.turnStartTime")
}

// PrepareForUpdate keeps everything but spec.initializers and spec.skipped, and derives
// when the turn began and the status.
func (s *InitializeStrategy) PrepareForUpdate(ctx context.Context, object, oldObject runtime.Object) {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	keepMetadata(record, old)
	initializers, skipped := record.Spec.Initializers, record.Spec.Skipped
	record.Spec = old.Spec
	record.Spec.Initializers = initializers
	record.Spec.Skipped = merged(old.Spec.Skipped, skipped)
	normalize(record)
	record.Status = *old.Status.DeepCopy()
	advance(record, old, s.clock.Now(), actor(ctx))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *InitializeStrategy) ValidateUpdate(ctx context.Context, object, oldObject runtime.Object) field.ErrorList {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	return append(s.Strategy.ValidateUpdate(ctx, object, oldObject), validation.ValidateInitialize(record, old)...)
}

// AuthorizeInitialize returns the authorization of the initialize subresource: whoever
// removes an entry must be the initializer that it names, and so must whoever sets a
// failing result for the first one. The privileged may do it in an initializer's place
// where the record tells that it did not do its work: skip it, or fail it. It runs on a
// transition that is valid, so what is gone was in front.
func AuthorizeInitialize(checker *authorization.Checker) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, object, oldObject runtime.Object) error {
		record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
		before, after := helper.Pending(old), helper.Pending(record)
		for _, removed := range before[:len(before)-len(after)] {
			err := checker.MayInitialize(ctx, record.Name, removed.Name)
			if err != nil && slices.Contains(record.Spec.Skipped, removed.Name) && checker.MayOpen(ctx, record.Name) == nil {
				err = nil
			}
			if err != nil {
				return fmt.Errorf("spec.initializers.pending: cannot remove %q: %w", removed.Name, err)
			}
		}
		if helper.Failure(record) == nil || helper.Failure(old) != nil {
			return nil
		}
		if err := checker.MayInitialize(ctx, record.Name, before[0].Name); err != nil && checker.MayOpen(ctx, record.Name) != nil {
			return fmt.Errorf("spec.initializers.result: cannot fail in place of %q: %w", before[0].Name, err)
		}
		return nil
	}
}

// InitializeAudit tells who was removed from the list, and of whom the initialization failed.
func InitializeAudit(object, oldObject runtime.Object) map[string]string {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	before, after := helper.Pending(old), helper.Pending(record)
	annotations := map[string]string{}
	if gone := before[:len(before)-len(after)]; len(gone) > 0 {
		var names []string
		for _, removed := range gone {
			names = append(names, removed.Name)
		}
		annotations[v1alpha1.AuditRemovedInitializers] = strings.Join(names, ",")
	}
	if helper.Failure(record) != nil && helper.Failure(old) == nil {
		annotations[v1alpha1.AuditFailedInitializer] = before[0].Name
	}
	return annotations
}

// merged adds to the names that are there those that are new. A writer that leaves names
// out, because it read them before they came, takes none away.
func merged(names, sent []string) []string {
	names = slices.Clone(names)
	for _, name := range sent {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
