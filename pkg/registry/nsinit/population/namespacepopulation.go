/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package population declares the parts of NamespacePopulations and PopulatedNamespaces, and which endpoint owns each of them.
package population

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// initializer is the program that reads populations, and writes PopulatedNamespaces.
const initializer = "policy-population"

// NewKind returns the declaration of NamespacePopulations.
func NewKind() *generic.Kind[*nsinit.NamespacePopulation] {
	type object = *nsinit.NamespacePopulation
	kind := specAndStatus(func(to, from object) { to.Spec = from.Spec }, func(to, from object) { to.Status = from.Status })
	kind.Resource, kind.Singular, kind.ShortNames = "namespacepopulations", "namespacepopulation", []string{"nspop"}
	kind.New = func() runtime.Object { return &nsinit.NamespacePopulation{} }
	kind.NewList = func() runtime.Object { return &nsinit.NamespacePopulationList{} }
	kind.Create = func(_ context.Context, created object) {
		created.Status = v1alpha1.NamespacePopulationStatus{Conditions: generic.NotObserved(created, initializer)}
	}
	kind.Validate, kind.Table = validate, newTable()
	return kind
}

// specAndStatus returns a kind with a spec and a status, each with an endpoint that owns it.
func specAndStatus[T generic.Object](copySpec, copyStatus func(to, from T)) *generic.Kind[T] {
	return &generic.Kind[T]{
		Parts: []generic.Part[T]{
			generic.Metadata[T](),
			{Name: "spec", Copy: copySpec, Generation: true},
			{Name: "status", Copy: copyStatus},
		},
		Endpoints: map[string]generic.Endpoint[T]{
			"":       {Owns: []string{"metadata", "spec"}},
			"status": {Owns: []string{"status"}},
		},
	}
}

// validate validates a population. If the spec changes, it compiles the expressions, so that their author
// gets the errors.
func validate(updated, old *nsinit.NamespacePopulation) field.ErrorList {
	errs := validation.ValidateNamespacePopulation(updated, old)
	if old != nil && equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		return errs
	}
	_, compileErrs := population.Compile(updated.Name, &updated.Spec)
	return append(errs, compileErrs...)
}

func newTable() *generic.Table[*nsinit.NamespacePopulation] {
	return &generic.Table[*nsinit.NamespacePopulation]{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the population, by which populations are ordered."},
			{Name: "Ready", Type: "string", Description: "Whether every manifest could be applied to a new namespace: True, False or Unknown."},
			{Name: "Manifests", Type: "integer", Description: "Number of manifests."},
			{Name: "Namespaces", Type: "integer", Description: "Number of namespaces that have objects of the population."},
			{Name: "Failed", Type: "integer", Description: "Number of objects that could not be applied."},
			{Name: "Rollout", Type: "string", Description: "State of the rollout to namespaces that exist already, and how many have received every object. Empty with scope New."},
			{Name: "Age", Type: "string", Description: "How long ago the population was created."},
			{Name: "Conflicts", Type: "integer", Priority: 1, Description: "Number of objects of other clients that the rollout leaves as they are."},
			{Name: "Refused", Type: "integer", Priority: 1, Description: "Number of objects that the rollout cannot apply."},
			{Name: "Message", Type: "string", Priority: 1, Description: "The first error."},
		},
		Cells: func(p *nsinit.NamespacePopulation, age string) []any {
			failed, message := int64(0), ""
			for _, m := range p.Status.Manifests {
				failed += int64(m.Failed)
				if message == "" && m.Failed > 0 {
					message = fmt.Sprintf("%s in %s: %s", m.Name, m.Namespace, m.Message)
				}
			}
			ready := metav1.ConditionUnknown
			if condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
				ready = condition.Status
				if message == "" && ready == metav1.ConditionFalse {
					message = condition.Message
				}
			}
			state, rollout := rolloutOf(p)
			return []any{p.Name, string(ready), int64(len(p.Spec.Manifests)), int64(p.Status.Namespaces), failed, state, age, int64(rollout.Conflicts), int64(rollout.Refused), message}
		},
	}
}

// rolloutOf returns a text such as "Paused 3/40", and the state of the rollout.
func rolloutOf(p *nsinit.NamespacePopulation) (string, v1alpha1.PopulationRolloutStatus) {
	condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	switch {
	case condition == nil:
		return "", v1alpha1.PopulationRolloutStatus{}
	case p.Status.Rollout == nil:
		return condition.Reason, v1alpha1.PopulationRolloutStatus{}
	}
	return fmt.Sprintf("%s %d/%d", condition.Reason, p.Status.Rollout.Current, p.Status.Rollout.Namespaces), *p.Status.Rollout
}
