/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// metadataManifest is the name of the manifest of spec.namespaceMetadata. No other manifest can have it, because it is no DNS label.
const metadataManifest = "namespaceMetadata"

// Manifests returns the manifests of a population, beginning with that of its namespaceMetadata, which has no template.
func Manifests(spec *v1alpha1.NamespacePopulationSpec) []v1alpha1.PopulationManifest {
	if spec.NamespaceMetadata == nil {
		return spec.Manifests
	}
	return append([]v1alpha1.PopulationManifest{{Name: metadataManifest, DriftPolicy: spec.NamespaceMetadata.DriftPolicy, PrunePolicy: v1alpha1.PruneDelete}}, spec.Manifests...)
}

// compileMetadata compiles namespaceMetadata. selector selects the namespaces.
func compileMetadata(environment *expressions.Environment, spec *v1alpha1.PopulationNamespaceMetadata, selector labels.Selector, path *field.Path) (*expressions.Template, field.ErrorList) {
	var errs field.ErrorList
	requirements, _ := selector.Requirements()
	values := map[string]any{}
	for name, some := range map[string]struct {
		entries map[string]string
		most    int
	}{"labels": {spec.Labels, 63}, "annotations": {spec.Annotations, 64}} { // the guard admits 64 of each, with the label kubernetes.io/metadata.name
		if len(some.entries) > some.most {
			errs = append(errs, field.TooMany(path.Child(name), len(some.entries), some.most))
		}
		of := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(some.entries)) {
			of[key] = some.entries[key]
			at := path.Child(name).Key(key)
			for _, problem := range utilvalidation.IsQualifiedName(strings.ToLower(key)) {
				errs = append(errs, field.Invalid(at, key, problem))
			}
			switch {
			case strings.HasPrefix(key, v1alpha1.GroupName+"/") || key == corev1.LabelMetadataName:
				errs = append(errs, field.Forbidden(at, "nsinit or Kubernetes sets it"))
			case name == "labels" && slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() == key }):
				errs = append(errs, field.Forbidden(at, "namespaceSelector reads this label: the population would change which namespaces it selects"))
			}
		}
		values[name] = of
	}
	template, templateErrs := environment.Template(values, path)
	return template, append(errs, templateErrs...)
}

// metadataOf returns the content of a namespace with rendered labels and annotations.
func metadataOf(namespace string, rendered map[string]any, path *field.Path) (*unstructured.Unstructured, error) {
	for _, name := range []string{"labels", "annotations"} {
		for key, value := range rendered[name].(map[string]any) { // as compiled
			text, ok := value.(string)
			if !ok {
				return nil, field.Invalid(path.Child(name).Key(key), value, "it must be a text")
			}
			if problems := utilvalidation.IsValidLabelValue(text); name == "labels" && len(problems) > 0 {
				return nil, field.Invalid(path.Child(name).Key(key), text, strings.Join(problems, ", "))
			}
		}
	}
	rendered["name"] = namespace
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": rendered}}, nil
}

// settles returns an error if the rendered labels and annotations would be other ones once the namespace has them: each repair would then
// cause the next one.
func (m *manifest) settles(namespace *corev1.Namespace, content *unstructured.Unstructured) error {
	labeled := namespace.DeepCopy()
	labeled.Labels, labeled.Annotations = labels.Merge(labeled.Labels, content.GetLabels()), labels.Merge(labeled.Annotations, content.GetAnnotations())
	again, _, err := m.render("", namespace.Name, expressions.KnownVariables(labeled))
	if err == nil && !equality.Semantic.DeepEqual(content, again) {
		err = field.Forbidden(m.path, "the values change once they are set: an expression with driftPolicy Repair must not read what namespaceMetadata sets")
	}
	return err
}

// isMetadata reports whether an entry is labels and annotations of its namespace.
func isMetadata(entry v1alpha1.PopulatedObject) bool { return entry.Manifest == metadataManifest }

// decorate applies labels and annotations to a namespace, and removes those that the population applied before. Each population has its
// own field manager. force takes over those that other clients set.
func (a *Applier) decorate(ctx context.Context, namespace *corev1.Namespace, population string, content *unstructured.Unstructured, force bool) (
	stored *unstructured.Unstructured, outcome Outcome, err error,
) {
	defer explain(&err, "label", "Namespace", namespace.Name)
	content = content.DeepCopy()
	content.SetUID(namespace.UID) // otherwise, it would create a namespace
	options := a.options(force)
	options.FieldManager += "/" + population
	stored, err = a.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Apply(ctx, namespace.Name, content, options)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return nil, Conflict, err
	case err != nil:
		return nil, Refused, err
	case maps.Equal(stored.GetLabels(), namespace.Labels) && maps.Equal(stored.GetAnnotations(), namespace.Annotations):
		return stored, Unchanged, nil
	}
	return stored, Configured, nil
}

// undecorate removes the labels and annotations that a population applied to a namespace. An initializer without the permission never
// applied those of an entry without a UID.
func (a *Applier) undecorate(ctx context.Context, namespace *corev1.Namespace, entry v1alpha1.PopulatedObject) error {
	none, err := metadataOf(namespace.Name, map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}}, nil)
	if err == nil {
		_, _, err = a.decorate(ctx, namespace, entry.Population, none, false)
	}
	if err != nil && entry.UID == "" && lacksPermission(err) {
		return nil
	}
	return err
}

// mayDecorate returns an error if the initializer may not label namespaces.
func (a *Applier) mayDecorate(ctx context.Context) (string, error) {
	if reason, err := a.permitted(ctx, corev1.Resource("namespaces"), "", []string{"patch"}); err != nil {
		return reason, fmt.Errorf("cannot label namespaces: %w", err)
	}
	return "", nil
}
