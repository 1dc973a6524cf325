/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Key identifies a manifest.
type Key struct{ Population, Manifest string }

// Identity identifies an object of a namespace in every version of its kind.
type Identity struct {
	Group, Kind, Name string
	// Population is set for the metadata of a namespace, which each population applies for itself.
	Population string
}

// IdentityOf returns the identity of an object in an inventory.
func IdentityOf(object v1alpha1.PopulatedObject) Identity {
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	identity := Identity{Group: kind.Group, Kind: kind.Kind, Name: object.Name}
	if isMetadata(object) {
		identity.Population = object.Population
	}
	return identity
}

// Object is a manifest rendered for a namespace.
type Object struct {
	Key
	Scope       v1alpha1.PopulationScopeType
	DriftPolicy v1alpha1.DriftPolicyType
	PrunePolicy v1alpha1.PrunePolicyType
	// Content is the rendered object, nil after an error. Identity and APIVersion are those of the content.
	Content    *unstructured.Unstructured
	Identity   Identity
	APIVersion string
	// Err is why the manifest cannot be rendered, with the field.
	Err error
	// Hash identifies a content whose drift is repaired. Otherwise, it is empty: the object is not changed after it was created.
	Hash string
	// isLater says that its population has scope New, and was created after the namespace.
	isLater bool
	// ready is when the stored object is ready, in addition to what its kind needs. Nil: when it is applied.
	ready *expressions.Condition
}

// entry returns the entry of the object in an inventory, before it was applied.
func (o *Object) entry() v1alpha1.PopulatedObject {
	return v1alpha1.PopulatedObject{Population: o.Population, Manifest: o.Manifest, PrunePolicy: o.PrunePolicy,
		APIVersion: o.APIVersion, Kind: o.Identity.Kind, Name: o.Identity.Name}
}

// find returns the index of the object in an inventory: it was applied for this manifest. A manifest that cannot be rendered
// may have been applied as any object.
func (o *Object) find(inventory []v1alpha1.PopulatedObject) int {
	return slices.IndexFunc(inventory, func(entry v1alpha1.PopulatedObject) bool {
		return entry.UID != "" && KeyOf(entry) == o.Key && (o.Identity == Identity{} || IdentityOf(entry) == o.Identity)
	})
}

// isIn reports whether an inventory has the object.
func (o *Object) isIn(inventory []v1alpha1.PopulatedObject) bool { return o.find(inventory) >= 0 }

// current returns the entry of the object in an inventory, if there is nothing to roll out: the object was created, and if its
// drift is repaired, its manifest has not changed since. Otherwise, it returns nil.
func (o *Object) current(inventory []v1alpha1.PopulatedObject) *v1alpha1.PopulatedObject {
	i := o.find(inventory)
	if i < 0 || o.Hash != "" && o.Hash != inventory[i].ContentHash {
		return nil
	}
	return &inventory[i]
}

// belongsTo reports whether an open namespace with an inventory gets what it does not have of the object's population: with scope New, only
// a namespace that was created while the population existed does. Objects that moved from a former manifest stay.
func (o *Object) belongsTo(inventory []v1alpha1.PopulatedObject, wanted []Object) bool {
	return !o.isLater || slices.ContainsFunc(inventory, func(entry v1alpha1.PopulatedObject) bool {
		return entry.Population == o.Population || IdentityOf(entry) == o.Identity && !slices.ContainsFunc(wanted, func(w Object) bool { return KeyOf(entry) == w.Key })
	})
}

// movedFrom returns the UID of the object if it was applied for a manifest that has it no more, and its drift was repaired: tenants
// could not change it. wanted are the objects of all manifests.
func (o *Object) movedFrom(inventory []v1alpha1.PopulatedObject, wanted []Object) types.UID {
	for i, entry := range inventory {
		if entry.ContentHash != "" && IdentityOf(entry) == o.Identity && !slices.ContainsFunc(wanted, func(w Object) bool { return w.isIn(inventory[i : i+1]) }) {
			return entry.UID
		}
	}
	return ""
}

// has reports whether a population has a manifest, whether a namespace gets it or not.
func (p *Population) has(name string) bool {
	return slices.ContainsFunc(p.manifests, func(m manifest) bool { return m.Name == name })
}

// Selects returns whether the population selects a namespace by its labels.
func (p *Population) Selects(namespace *corev1.Namespace) bool {
	return p.selector.Matches(labels.Set(namespace.Labels))
}

// Render returns the objects of a namespace. The populations must be in order.
func Render(populations []*Population, namespace *corev1.Namespace) []Object {
	variables := expressions.KnownVariables(namespace)
	var objects []Object
	for _, p := range populations {
		if !p.Selects(namespace) {
			continue
		}
		for _, m := range p.manifests {
			content, wanted, err := m.render(p.Name, namespace.Name, variables)
			if !wanted {
				continue
			}
			if m.Name == metadataManifest && m.DriftPolicy == v1alpha1.DriftRepair && err == nil {
				if err = m.settles(namespace, content); err != nil {
					content = nil
				}
			}
			object := Object{Key: Key{p.Name, m.Name}, Scope: p.Scope, DriftPolicy: m.DriftPolicy, PrunePolicy: m.PrunePolicy, Content: content, Err: err, Hash: m.hash(content), ready: m.ready,
				isLater: p.Scope != v1alpha1.ScopeAll && namespace.CreationTimestamp.Before(&p.Created)}
			if content != nil {
				object.APIVersion = content.GetAPIVersion()
				object.Identity = IdentityOf(v1alpha1.PopulatedObject{Population: p.Name, Manifest: m.Name, APIVersion: object.APIVersion, Kind: content.GetKind(), Name: content.GetName()})
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// hash returns a hash of a content, or nothing if its drift is not repaired or there is none.
func (m *manifest) hash(content *unstructured.Unstructured) string {
	if content == nil || m.DriftPolicy != v1alpha1.DriftRepair {
		return ""
	}
	hash := sha256.New()
	_ = json.NewEncoder(hash).Encode(content.Object) // rendered from JSON
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// render returns the object, and whether the namespace gets it. After an error, it is true.
func (m *manifest) render(population, namespace string, variables map[string]any) (*unstructured.Unstructured, bool, error) {
	if m.when != nil {
		holds, err := m.when.Holds(variables)
		if err != nil {
			return nil, true, fmt.Errorf("%s: %w", m.path.Child("when"), err)
		}
		if !holds {
			return nil, false, nil
		}
	}
	rendered, err := m.template.Render(variables)
	if err != nil {
		return nil, true, err
	}
	if m.Name == metadataManifest {
		content, err := metadataOf(namespace, rendered.(map[string]any), m.path) // as compiled
		return content, true, err
	}
	content := &unstructured.Unstructured{Object: rendered.(map[string]any)} // as compiled
	if errs := literals(content.Object, m.path.Child("template")); len(errs) > 0 {
		return nil, true, errs.ToAggregate() // the result of an expression is empty
	}
	content.SetLabels(labels.Merge(content.GetLabels(), labels.Set{v1alpha1.LabelPopulation: population}))
	return content, true, nil
}
