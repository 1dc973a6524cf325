/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

type object = *nsinit.NamespaceLifecycle

// NewKind returns the declaration of NamespaceLifecycles, without a table. The checker authorizes
// initializers and participants.
func NewKind(checker *authorization.Checker, clock clock.PassiveClock) *generic.Kind[*nsinit.NamespaceLifecycle] {
	finalize := generic.Finalize(checker, object.GetName)
	finalize.Audit = generic.FinalizeAudit
	finalize.Prepare = func(ctx context.Context, updated, old object) {
		for _, name := range old.Participants() {
			if entry := updated.Entry(name); entry != nil && updated.DeletionTimestamp != nil && !slices.Contains(updated.Participants(), name) {
				entry.LastActor = generic.UserOf(ctx)
			}
		}
		settlePhase(updated, clock.Now())
		settleStalled(updated, clock.Now())
	}
	return &generic.Kind[object]{
		Resource: "namespacelifecycles", Singular: "namespacelifecycle", ShortNames: []string{"nsl"},
		New:     func() runtime.Object { return &nsinit.NamespaceLifecycle{} },
		NewList: func() runtime.Object { return &nsinit.NamespaceLifecycleList{} },
		Parts:   parts(),
		Endpoints: map[string]generic.Endpoint[object]{
			"":           {Owns: []string{"metadata", "spec.namespaceUID"}},
			"status":     status(checker, clock),
			"finalize":   finalize,
			"initialize": initialize(checker, clock),
		},
		// Admission has filled spec.plan and spec.initializers.
		Create: func(ctx context.Context, created object) {
			created.Spec.Skipped = nil
			normalize(created)
			nameFailed(created, "", created.CurrentInitializers())
			begin(created, clock.Now(), generic.UserOf(ctx))
		},
		Validate: validation.ValidateNamespaceLifecycle,
		Fields:   selectable,
		Terminate: func(l object) {
			for i := range l.Status.Initializers {
				l.Status.Initializers[i].StalledTime = nil // the turn has ended, and the cleanup begins
			}
			settle(l, clock.Now(), "")
		},
	}
}

// parts returns the parts of a NamespaceLifecycle. The server derives those that no endpoint owns.
func parts() []generic.Part[object] {
	return []generic.Part[object]{
		generic.Metadata[object](),
		{Name: "spec.namespaceUID", Copy: func(to, from object) { to.Spec.NamespaceUID = from.Spec.NamespaceUID }},
		{Name: "spec.plan", Copy: func(to, from object) { to.Spec.Plan = from.Spec.Plan }},
		// The conditions describe the initialization, so spec.finalizers does not change the generation.
		{Name: "spec.initializers", Copy: func(to, from object) { to.Spec.Initializers = from.Spec.Initializers }, Generation: true},
		{Name: "spec.skipped", Copy: func(to, from object) { to.Spec.Skipped = from.Spec.Skipped }, Generation: true},
		generic.Finalizers[object](),
		{
			Name: "derived status",
			Fields: []string{
				"status.phase", "status.currentInitializers", "status.initializers.*.state", "status.initializers.*.startTime",
				"status.initializers.*.endTime", "status.initializers.*.deadline", "status.initializers.*.lastActor",
				`status.conditions.[type="Initializing"]`, `status.conditions.[type="Ready"]`, `status.conditions.[type="PlanDegraded"]`, `status.conditions.[type="Stalled"]`,
			},
			Copy: copyDerived,
		},
		{Name: "status.initializers", Copy: func(to, from object) { to.Status.Initializers = from.Status.Initializers }},
		{Name: "status.conditions", Copy: func(to, from object) { to.Status.Conditions = from.Status.Conditions }},
	}
}

// selectable returns the selectable fields: one for each current initializer.
func selectable(lifecycle object) fields.Set {
	set := fields.Set{"status.phase": string(lifecycle.Status.Phase)}
	for _, name := range lifecycle.Status.CurrentInitializers {
		field, value := v1alpha1.CurrentInitializerField(name)
		set[field] = value
	}
	if len(lifecycle.Status.CurrentInitializers) > 0 {
		set[v1alpha1.FieldCurrentInitializer] = "some"
	}
	return set
}
