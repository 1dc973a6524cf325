/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apicontent "k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Population is a NamespacePopulation whose expressions were compiled.
type Population struct {
	Name      string
	Scope     v1alpha1.PopulationScopeType
	Created   metav1.Time
	selector  labels.Selector
	manifests []manifest
}

type manifest struct {
	v1alpha1.PopulationManifest
	path     *field.Path
	when     *expressions.Condition // nil: always
	ready    *expressions.Condition // nil: when it is applied
	template *expressions.Template
}

// Sort sorts populations by name, the order in which they are applied.
func Sort(populations []v1alpha1.NamespacePopulation) {
	slices.SortFunc(populations, func(a, b v1alpha1.NamespacePopulation) int { return cmp.Compare(a.Name, b.Name) })
}

// Compiler compiles populations, each version once. The zero value is ready to use. The generation does not identify a version: an older
// snapshot of the storage, once it is restored, gives the same generations to other specs.
type Compiler struct {
	mu    sync.Mutex
	known map[types.UID]compiled
}

type compiled struct {
	spec       *v1alpha1.NamespacePopulationSpec
	population *Population
	err        error
}

// Compile returns a population as compiled, or why it is not valid: another version of the server accepted it.
func (c *Compiler) Compile(p *v1alpha1.NamespacePopulation) (*Population, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[p.UID]; ok && reflect.DeepEqual(known.spec, &p.Spec) { // which compares bytes faster than equality.Semantic
		return known.population, known.err
	}
	if c.known == nil {
		c.known = map[types.UID]compiled{}
	}
	result, errs := Compile(p.Name, &p.Spec)
	err := errs.ToAggregate()
	if err == nil {
		result.Created = p.CreationTimestamp
	}
	c.known[p.UID] = compiled{&p.Spec, result, err}
	return result, err
}

// Retain forgets every population that is not in a list.
func (c *Compiler) Retain(list []v1alpha1.NamespacePopulation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(uid types.UID, _ compiled) bool {
		return !slices.ContainsFunc(list, func(p v1alpha1.NamespacePopulation) bool { return p.UID == uid })
	})
}

// Compile compiles a population, and returns every error in its selector, expressions and templates.
func Compile(name string, spec *v1alpha1.NamespacePopulationSpec) (*Population, field.ErrorList) {
	path := field.NewPath("spec")
	environment, err := expressions.NewEnvironment()
	live, liveErr := expressions.NewEnvironment("object")
	if err := errors.Join(err, liveErr); err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	compiled := &Population{Name: name, Scope: spec.Scope, selector: labels.Everything()}
	var errs field.ErrorList
	if spec.NamespaceSelector != nil {
		if compiled.selector, err = metav1.LabelSelectorAsSelector(spec.NamespaceSelector); err != nil {
			errs = append(errs, field.Invalid(path.Child("namespaceSelector"), spec.NamespaceSelector, err.Error()))
		}
	}
	if spec.NamespaceMetadata != nil {
		at := path.Child("namespaceMetadata")
		template, metadataErrs := compileMetadata(environment, spec.NamespaceMetadata, compiled.selector, at)
		compiled.manifests, errs = append(compiled.manifests, manifest{PopulationManifest: Manifests(spec)[0], path: at, template: template}), append(errs, metadataErrs...)
	}
	for i, m := range spec.Manifests {
		result, manifestErrs := compileManifest(environment, live, m, path.Child("manifests").Index(i))
		compiled.manifests, errs = append(compiled.manifests, result), append(errs, manifestErrs...)
	}
	return compiled, errs
}

// compileManifest compiles a manifest. live is the environment of expressions about the stored object.
func compileManifest(environment, live *expressions.Environment, m v1alpha1.PopulationManifest, path *field.Path) (manifest, field.ErrorList) {
	result := manifest{PopulationManifest: m, path: path}
	var errs field.ErrorList
	condition := func(in *expressions.Environment, name, source string) *expressions.Condition {
		if source == "" {
			return nil
		}
		compiled, err := in.Condition(source)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child(name), source, err.Error()))
		}
		return compiled
	}
	result.when, result.ready = condition(environment, "when", m.When), condition(live, "readyWhen", m.ReadyWhen)
	templatePath := path.Child("template")
	content, err := object(m.Template)
	if err != nil {
		return result, append(errs, field.Invalid(templatePath, field.OmitValueType{}, err.Error()))
	}
	errs = append(errs, literals(content, templatePath)...)
	template, templateErrs := environment.Template(content, templatePath)
	result.template = template
	return result, append(errs, templateErrs...)
}

// object returns the JSON object in a template.
func object(template runtime.RawExtension) (map[string]any, error) {
	data, err := template.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("it must be an object: %w", err)
	}
	if len(content) == 0 {
		return nil, errors.New("it is empty: give an object with apiVersion, kind and metadata.name")
	}
	return content, nil
}

// literals checks the fields that identify the object, and those that a manifest must not have.
func literals(content map[string]any, path *field.Path) field.ErrorList {
	o := unstructured.Unstructured{Object: content}
	var errs field.ErrorList
	if o.GetKind() == "" {
		errs = append(errs, field.Required(path.Child("kind"), "give the kind of the object"))
	}
	if o.GetName() == "" {
		errs = append(errs, field.Required(path.Child("metadata", "name"), "give the name of the object; generateName is not supported"))
	}
	if problems := apicontent.IsPathSegmentName(o.GetName()); len(problems) > 0 && !strings.Contains(o.GetName(), "${") {
		errs = append(errs, field.Invalid(path.Child("metadata", "name"), o.GetName(), strings.Join(problems, ", ")))
	}
	switch version, err := schema.ParseGroupVersion(o.GetAPIVersion()); {
	case o.GetAPIVersion() == "":
		errs = append(errs, field.Required(path.Child("apiVersion"), "give the group and version of the object"))
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("apiVersion"), o.GetAPIVersion(), err.Error()))
	case version.Version == "":
		errs = append(errs, field.Invalid(path.Child("apiVersion"), o.GetAPIVersion(), "it has no version"))
	}
	if namespace := o.GetNamespace(); namespace != "" {
		errs = append(errs, field.Forbidden(path.Child("metadata", "namespace"), fmt.Sprintf("it is %q: remove it; the object is created in the populated namespace", namespace)))
	}
	if refs := o.GetOwnerReferences(); len(refs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("metadata", "ownerReferences"), "remove them: nsinit sets them"))
	}
	if _, has := content["status"]; has {
		errs = append(errs, field.Forbidden(path.Child("status"), "remove it: it is not applied"))
	}
	return errs
}
