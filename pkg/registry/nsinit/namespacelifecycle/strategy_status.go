/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// status returns the endpoint status. A client writes the messages of initializers, and
// nsinit-controller-manager their stalledTime and the conditions that the server does not derive. The server removes characters that change what
// terminals show, and derives the conditions that contain the message of the current initializer.
func status(checker *authorization.Checker, clock clock.PassiveClock) generic.Endpoint[object] {
	return generic.Endpoint[object]{
		Owns: []string{"status.initializers", "status.conditions"},
		Entries: func(lifecycle object) (entries, planned []string) {
			for _, entry := range lifecycle.Status.Initializers {
				entries = append(entries, entry.Name)
			}
			for _, entry := range lifecycle.Spec.Plan {
				planned = append(planned, entry.Name)
			}
			return entries, planned
		},
		Prepare: func(ctx context.Context, updated, old object) {
			for i := range updated.Status.Initializers {
				entry := &updated.Status.Initializers[i]
				entry.Message = printable.Lines(entry.Message)
				if entry.Message != old.Status.Initializers[i].Message {
					entry.LastActor = generic.UserOf(ctx)
				}
			}
			settlePhase(updated, clock.Now())
			settleStalled(updated, clock.Now())
		},
		Authorize: authorizeStatus(checker),
	}
}

// copyDerived copies the status except for what clients write. No client adds or removes entries.
func copyDerived(to, from object) {
	status := from.Status
	status.Initializers = slices.Clone(from.Status.Initializers)
	for i := range status.Initializers {
		if sent := to.Entry(status.Initializers[i].Name); sent != nil {
			status.Initializers[i].Message = sent.Message
			if sent.StalledTime != nil { // who writes a message can leave it out
				status.Initializers[i].StalledTime = sent.StalledTime
			}
		}
	}
	status.Conditions = slices.Concat(filter(from.Status.Conditions, true), filter(to.Status.Conditions, false))
	to.Status = status
}

// filter returns the conditions that the server derives, or the others.
func filter(conditions []metav1.Condition, derived bool) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool {
		return derived != slices.Contains([]string{v1alpha1.ConditionInitializing, v1alpha1.ConditionReady, v1alpha1.ConditionPlanDegraded, v1alpha1.ConditionStalled}, c.Type)
	})
}

// authorizeStatus returns the authorization of the endpoint status: an initializer writes its own
// message, and only users with the verb open write stalledTime and conditions.
func authorizeStatus(checker *authorization.Checker) func(ctx context.Context, updated, old object) error {
	return func(ctx context.Context, updated, old object) error {
		for i, entry := range updated.Status.Initializers {
			before := old.Status.Initializers[i]
			if entry.StalledTime != nil && !entry.StalledTime.Equal(before.StalledTime) {
				if err := checker.MayOpen(ctx, updated.Name); err != nil {
					return fmt.Errorf("status.initializers: cannot write the stalledTime of %q: %w", entry.Name, err)
				}
			}
			if entry.Message == before.Message {
				continue
			}
			if err := checker.MayInitialize(ctx, updated.Name, entry.Name); err != nil {
				return fmt.Errorf("status.initializers: cannot write the message of %q: %w", entry.Name, err)
			}
		}
		if !equality.Semantic.DeepEqual(filter(updated.Status.Conditions, false), filter(old.Status.Conditions, false)) {
			if err := checker.MayOpen(ctx, updated.Name); err != nil {
				return fmt.Errorf("status.conditions: cannot be changed: %w", err)
			}
		}
		return nil
	}
}
