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

	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/helper"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
)

// initialize returns the endpoint initialize, the only way to change spec.initializers and
// spec.skipped after creation. The server derives the start of the turn and the status in the same
// write.
func initialize(checker *authorization.Checker, clock clock.PassiveClock) generic.Endpoint[object] {
	return generic.Endpoint[object]{
		Owns: []string{"spec.initializers", "spec.skipped"},
		Prepare: func(ctx context.Context, updated, old object) {
			updated.Spec.Skipped = merged(old.Spec.Skipped, updated.Spec.Skipped)
			normalize(updated)
			advance(updated, old, clock.Now(), actor(ctx))
		},
		Validate:  validation.ValidateInitialize,
		Authorize: authorizeInitialize(checker),
		Audit:     auditInitialize,
	}
}

// authorizeInitialize returns the authorization of the endpoint initialize: an initializer removes
// its own entry, or sets a failing result while its entry is the first. A user with the verb open
// may skip or fail an initializer, which the NamespaceLifecycle then reports. The transition is
// valid, so the removed entries were the first ones.
func authorizeInitialize(checker *authorization.Checker) func(ctx context.Context, lifecycle, old object) error {
	return func(ctx context.Context, lifecycle, old object) error {
		before, after := helper.Pending(old), helper.Pending(lifecycle)
		for _, removed := range before[:len(before)-len(after)] {
			err := checker.MayInitialize(ctx, lifecycle.Name, removed)
			if err != nil && slices.Contains(lifecycle.Spec.Skipped, removed) && checker.MayOpen(ctx, lifecycle.Name) == nil {
				err = nil
			}
			if err != nil {
				return fmt.Errorf("spec.initializers.pending: cannot remove %q: %w", removed, err)
			}
		}
		if helper.Failure(lifecycle) == nil || helper.Failure(old) != nil {
			return nil
		}
		if err := checker.MayInitialize(ctx, lifecycle.Name, before[0]); err != nil && checker.MayOpen(ctx, lifecycle.Name) != nil {
			return fmt.Errorf("spec.initializers.result: cannot fail in place of %q: %w", before[0], err)
		}
		return nil
	}
}

// auditInitialize returns the annotations of the audit log that name the initializers that were
// removed, and the one that failed.
func auditInitialize(lifecycle, old object) map[string]string {
	before, after := helper.Pending(old), helper.Pending(lifecycle)
	annotations := map[string]string{}
	if removed := before[:len(before)-len(after)]; len(removed) > 0 {
		annotations[v1alpha1.AuditRemovedInitializers] = strings.Join(removed, ",")
	}
	if helper.Failure(lifecycle) != nil && helper.Failure(old) == nil {
		annotations[v1alpha1.AuditFailedInitializer] = before[0]
	}
	return annotations
}

// merged appends the new names. A writer that read an older list removes none.
func merged(names, sent []string) []string {
	names = slices.Clone(names)
	for _, name := range sent {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
