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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// StatusStrategy is the strategy of the status subresource. It takes conditions and the
// messages of initializers from the caller, these without characters that change what
// terminals show; everything else in status is derived by the server and kept.
type StatusStrategy struct {
	*Strategy
}

// NewStatusStrategy returns the strategy of the status subresource.
func NewStatusStrategy(strategy *Strategy) *StatusStrategy { return &StatusStrategy{strategy} }

// GetResetFields names what this endpoint ignores of an update.
func (*StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields("metadata", "spec", "status.phase", "status.currentInitializer")
}

// PrepareForUpdate keeps everything but messages and the conditions that are not derived, and derives the others anew,
// which contain the message of the current initializer.
func (s *StatusStrategy) PrepareForUpdate(ctx context.Context, object, oldObject runtime.Object) {
	record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
	keepMetadata(record, old)
	record.Spec = old.Spec
	sent := record.Status
	record.Status = *old.Status.DeepCopy()
	record.Status.Conditions = withDerived(sent.Conditions, old.Status.Conditions)
	for i := range record.Status.Initializers {
		entry := &record.Status.Initializers[i]
		j := slices.IndexFunc(sent.Initializers, func(s nsinit.InitializerStatus) bool { return s.Name == entry.Name })
		if j < 0 {
			continue
		}
		message := printable.Lines(sent.Initializers[j].Message)
		if message == entry.Message {
			continue
		}
		entry.Message = message
		entry.LastActor = actor(ctx)
	}
	settlePhase(record, s.clock.Now())
}

// isDerived says whether the server derives a condition. Clients cannot change it.
func isDerived(condition metav1.Condition) bool {
	return condition.Type == v1alpha1.ConditionInitializing || condition.Type == v1alpha1.ConditionReady
}

// withDerived returns the conditions that a client sent, with the derived ones as they are stored.
func withDerived(sent, stored []metav1.Condition) []metav1.Condition {
	conditions := slices.DeleteFunc(slices.Clone(stored), func(c metav1.Condition) bool { return !isDerived(c) })
	return append(conditions, slices.DeleteFunc(slices.Clone(sent), isDerived)...)
}

// AuthorizeStatus returns the authorization of the status subresource: a participant writes
// the message of its own entry, and only the privileged write conditions.
func AuthorizeStatus(checker *authorization.Checker) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, object, oldObject runtime.Object) error {
		record, old := object.(*nsinit.NamespaceLifecycle), oldObject.(*nsinit.NamespaceLifecycle)
		for i, entry := range record.Status.Initializers {
			if entry.Message == old.Status.Initializers[i].Message {
				continue
			}
			if err := checker.MayInitialize(ctx, record.Name, entry.Name); err != nil {
				return fmt.Errorf("status.initializers: cannot write the message of %q: %w", entry.Name, err)
			}
		}
		if !equality.Semantic.DeepEqual(slices.DeleteFunc(slices.Clone(record.Status.Conditions), isDerived), slices.DeleteFunc(slices.Clone(old.Status.Conditions), isDerived)) {
			if err := checker.MayOpen(ctx, record.Name); err != nil {
				return fmt.Errorf("status.conditions: cannot be changed: %w", err)
			}
		}
		return nil
	}
}
