/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package nsinit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespacePopulation holds the manifests that the initializer policy-population
// applies to new namespaces, with its own identity, before tenants can write into
// them. With scope All, it also applies them to namespaces that exist already.
// Populations are applied in the order of their names; the order of the
// manifests within each is kept. It implements the Namespace Population proposal,
// which the Namespace Initializer KEP describes in its first user story.
type NamespacePopulation struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   NamespacePopulationSpec
	Status NamespacePopulationStatus
}

// NamespacePopulationSpec holds the manifests and selects the namespaces.
type NamespacePopulationSpec struct {
	NamespaceSelector *metav1.LabelSelector
	Manifests         []PopulationManifest
	Scope             PopulationScopeType
	Rollout           PopulationRolloutType
}

// PopulationScopeType says which of the selected namespaces get the manifests.
type PopulationScopeType string

const (
	// ScopeNew means namespaces that are created while the population exists.
	ScopeNew PopulationScopeType = "New"
	// ScopeAll means also namespaces that exist already.
	ScopeAll PopulationScopeType = "All"
)

// PopulationRolloutType is what happens in namespaces that exist already.
type PopulationRolloutType string

const (
	// RolloutReport reports what RolloutApply would do.
	RolloutReport PopulationRolloutType = "Report"
	// RolloutApply gives a few namespaces at a time what changed in the manifests.
	RolloutApply PopulationRolloutType = "Apply"
)

// PopulationManifest is one object that namespaces get.
type PopulationManifest struct {
	Name        string
	When        string
	DriftPolicy DriftPolicyType
	PrunePolicy PrunePolicyType
	Template    runtime.RawExtension
}

// DriftPolicyType is what happens to an object after its namespace opens.
type DriftPolicyType string

const (
	// DriftIgnore leaves the object to the namespace's tenants.
	DriftIgnore DriftPolicyType = "Ignore"
	// DriftRepair makes the object follow its manifest.
	DriftRepair DriftPolicyType = "Repair"
)

// PrunePolicyType is what happens to an object whose manifest was removed.
type PrunePolicyType string

const (
	// PruneDelete deletes the object.
	PruneDelete PrunePolicyType = "Delete"
	// PruneOrphan keeps the object.
	PruneOrphan PrunePolicyType = "Orphan"
)

// NamespacePopulationStatus is the result of a population.
type NamespacePopulationStatus struct {
	ObservedGeneration int64
	Conditions         []metav1.Condition
	Namespaces         int32
	Manifests          []PopulationManifestStatus
	Rollout            *PopulationRolloutStatus
}

// PopulationRolloutStatus is the state of the rollout to namespaces that exist
// already.
type PopulationRolloutStatus struct {
	ObservedGeneration int64
	Namespaces         int32
	Current            int32
	Checked            int32
	ToCreate           int32
	ToChange           int32
	ToDelete           int32
	Unchanged          int32
	Conflicts          int32
	Refused            int32
	Problems           []PopulationProblem
}

// PopulationProblem is why a namespace that exists does not get an object.
type PopulationProblem struct {
	Namespace string
	Manifest  string
	Result    PopulationProblemType
	Message   string
}

// PopulationProblemType is the type of a problem.
type PopulationProblemType string

const (
	// ProblemConflict: another client owns the object or a field of it.
	ProblemConflict PopulationProblemType = "Conflict"
	// ProblemRefused: the object cannot be applied.
	ProblemRefused PopulationProblemType = "Refused"
)

// PopulationManifestStatus is the result of one manifest.
type PopulationManifestStatus struct {
	Name      string
	Applied   int32
	Failed    int32
	Message   string
	Namespace string
}

// ConditionApplied is the condition of a NamespacePopulation, and of a
// PopulatedNamespace, that says whether every manifest could be applied.
const ConditionApplied = "Applied"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NamespacePopulationList is a list of populations.
type NamespacePopulationList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NamespacePopulation
}
