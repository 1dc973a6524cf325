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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// initialize returns the endpoint initialize, the only way to change spec.initializers and
// spec.skipped after creation. The server derives the status in the same write.
func initialize(checker *authorization.Checker, clock clock.PassiveClock) generic.Endpoint[object] {
	return generic.Endpoint[object]{
		Owns: []string{"spec.initializers", "spec.skipped"},
		Prepare: func(ctx context.Context, updated, old object) {
			updated.Spec.Skipped = merged(old.Spec.Skipped, updated.Spec.Skipped)
			normalize(updated)
			nameFailed(updated, old.FailedInitializer(), old.CurrentInitializers())
			settle(updated, clock.Now(), generic.UserOf(ctx))
		},
		Validate:  validation.ValidateInitialize,
		Authorize: authorizeInitialize(checker),
		Audit:     auditInitialize,
	}
}

// nameFailed sets failedInitializer if the sender left it out and there is no choice: the initialization
// had failed before, or one initializer has its turn.
func nameFailed(lifecycle object, before string, current []string) {
	switch {
	case lifecycle.Failure() == nil || lifecycle.Spec.Initializers.FailedInitializer != "":
	case before != "":
		lifecycle.Spec.Initializers.FailedInitializer = before
	case len(current) == 1:
		lifecycle.Spec.Initializers.FailedInitializer = current[0]
	}
}

// authorizeInitialize returns the authorization of the endpoint initialize: an initializer removes
// its own entry, or sets a failing result. A user with the verb open may skip or fail an initializer,
// which the NamespaceLifecycle then reports. The transition is valid, so the initializers that it removes
// or fails had their turn, or waited only for others that it removes.
func authorizeInitialize(checker *authorization.Checker) func(ctx context.Context, lifecycle, old object) error {
	return func(ctx context.Context, lifecycle, old object) error {
		for _, name := range removed(lifecycle, old) {
			err := checker.MayInitialize(ctx, lifecycle.Name, name)
			if err != nil && slices.Contains(lifecycle.Spec.Skipped, name) && checker.MayOpen(ctx, lifecycle.Name) == nil {
				err = nil
			}
			if err != nil {
				return fmt.Errorf("spec.initializers.pending: cannot remove %q: %w", name, err)
			}
		}
		if lifecycle.Failure() == nil || old.Failure() != nil {
			return nil
		}
		failed := lifecycle.FailedInitializer()
		if err := checker.MayInitialize(ctx, lifecycle.Name, failed); err != nil && checker.MayOpen(ctx, lifecycle.Name) != nil {
			return fmt.Errorf("spec.initializers.result: cannot fail in place of %q: %w", failed, err)
		}
		return nil
	}
}

// auditInitialize returns the annotations of the audit log that name the initializers that were
// removed, and the one that failed.
func auditInitialize(lifecycle, old object) map[string]string {
	annotations := map[string]string{}
	if names := removed(lifecycle, old); len(names) > 0 {
		annotations[v1alpha1.AuditRemovedInitializers] = strings.Join(names, ",")
	}
	if lifecycle.Failure() != nil && old.Failure() == nil {
		annotations[v1alpha1.AuditFailedInitializer] = lifecycle.FailedInitializer()
	}
	return annotations
}

// removed returns the names of the initializers that were pending in old and are not any more.
func removed(lifecycle, old object) []string {
	after := lifecycle.Pending()
	return slices.DeleteFunc(old.Pending(), func(name string) bool { return slices.Contains(after, name) })
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
