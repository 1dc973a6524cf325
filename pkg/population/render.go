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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/expressions"
)

// Key identifies a manifest.
type Key struct{ Population, Manifest string }

// Object is a manifest rendered for a namespace.
type Object struct {
	Key
	Scope       v1alpha1.PopulationScopeType
	DriftPolicy v1alpha1.DriftPolicyType
	PrunePolicy v1alpha1.PrunePolicyType
	// Content is the rendered object, nil after an error.
	Content *unstructured.Unstructured
	// Err is why the manifest cannot be rendered, with the field.
	Err error
	// Hash identifies a content whose drift is repaired. Otherwise, it is empty: the object is not changed after it was created.
	Hash string
}

// Keys returns all manifests, whether a namespace gets them or not.
func Keys(populations []*Population) map[Key]struct{} {
	keys := map[Key]struct{}{}
	for _, p := range populations {
		for _, m := range p.manifests {
			keys[Key{p.Name, m.Name}] = struct{}{}
		}
	}
	return keys
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
			content, wanted, err := m.render(p.Name, variables)
			if wanted {
				objects = append(objects, Object{Key{p.Name, m.Name}, p.Scope, m.DriftPolicy, m.PrunePolicy, content, err, m.hash(content)})
			}
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
func (m *manifest) render(population string, variables map[string]any) (*unstructured.Unstructured, bool, error) {
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
	content := &unstructured.Unstructured{Object: rendered.(map[string]any)} // as compiled
	if errs := literals(content.Object, m.path.Child("template")); len(errs) > 0 {
		return nil, true, errs.ToAggregate() // the result of an expression is empty
	}
	content.SetLabels(labels.Merge(content.GetLabels(), labels.Set{v1alpha1.LabelPopulation: population}))
	return content, true, nil
}
