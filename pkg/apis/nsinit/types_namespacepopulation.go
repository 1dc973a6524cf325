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

// NamespacePopulation says what is put into new namespaces before their tenants
// may act: manifests with parameters, which the initializer policy-population
// applies with its own identity. Populations are applied in the order of their
// names; the order of the manifests within each is kept. The idea is that of
// the Namespace Population proposal, of which the Namespace Initializer KEP
// tells in its first user story.
type NamespacePopulation struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   NamespacePopulationSpec
	Status NamespacePopulationStatus
}

// NamespacePopulationSpec says what is applied, and where.
type NamespacePopulationSpec struct {
	NamespaceSelector *metav1.LabelSelector
	Manifests         []PopulationManifest
}

// PopulationManifest is one object that namespaces get.
type PopulationManifest struct {
	Name        string
	When        string
	DriftPolicy DriftPolicyType
	PrunePolicy PrunePolicyType
	Template    runtime.RawExtension
}

// DriftPolicyType says what happens to an object after its namespace was opened.
type DriftPolicyType string

const (
	// DriftIgnore leaves the object to the namespace's tenants.
	DriftIgnore DriftPolicyType = "Ignore"
	// DriftRepair makes the object follow its manifest.
	DriftRepair DriftPolicyType = "Repair"
)

// PrunePolicyType says what happens to an object whose manifest is no more.
type PrunePolicyType string

const (
	// PruneDelete deletes the object.
	PruneDelete PrunePolicyType = "Delete"
	// PruneOrphan leaves it where it is.
	PruneOrphan PrunePolicyType = "Orphan"
)

// NamespacePopulationStatus is what came of a population.
type NamespacePopulationStatus struct {
	ObservedGeneration int64
	Conditions         []metav1.Condition
	Namespaces         int32
	Manifests          []PopulationManifestStatus
}

// PopulationManifestStatus is what came of one manifest.
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
