/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// Strategy is the strategy of one endpoint, derived from the declaration of the kind.
type Strategy[T Object] struct {
	rest.DeclarativeValidation
	names.NameGenerator
	kind     *Kind[T]
	endpoint Endpoint[T]
}

var _ interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
	rest.ResetFieldsFilterStrategy
	rest.DeclarativeValidationStrategy
	fieldpath.Filter
} = (*Strategy[Object])(nil)

// NewStrategy returns the strategy of an endpoint. The scheme holds the generated validation.
func NewStrategy[T Object](kind *Kind[T], endpoint string, scheme *runtime.Scheme) *Strategy[T] {
	return &Strategy[T]{rest.DeclarativeValidation{Scheme: scheme}, names.SimpleNameGenerator, kind, kind.Endpoints[endpoint]}
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (*Strategy[T]) NamespaceScoped() bool { return false }

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (*Strategy[T]) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy.
func (*Strategy[T]) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (*Strategy[T]) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate refuses updates without a resourceVersion: they could hit a
// later incarnation of the same name.
func (*Strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (*Strategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// PrepareForCreate sets what the server decides.
func (s *Strategy[T]) PrepareForCreate(ctx context.Context, object runtime.Object) {
	created := object.(T)
	if s.kind.Terminate != nil {
		injectFinalizer(object.(nsinit.Terminable))
	}
	if slices.ContainsFunc(s.kind.Parts, func(part Part[T]) bool { return part.Generation }) {
		created.SetGeneration(1)
	}
	if s.kind.Create != nil {
		s.kind.Create(ctx, created)
	}
}

// Validate implements rest.RESTCreateStrategy.
func (s *Strategy[T]) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	var none T
	return s.kind.Validate(object.(T), none)
}

// PrepareForUpdate keeps the parts that the endpoint does not own, and increments
// metadata.generation if one that it owns requires it.
func (s *Strategy[T]) PrepareForUpdate(ctx context.Context, object, oldObject runtime.Object) {
	updated, old := object.(T), oldObject.DeepCopyObject().(T)
	before, after := s.kind.New().(T), s.kind.New().(T) // which have nothing but the owned parts that count
	for _, part := range s.kind.Parts {
		if !s.owns(part) {
			part.Copy(updated, old)
		} else if part.Generation {
			part.Copy(before, old)
			part.Copy(after, updated)
		}
	}
	if !equality.Semantic.DeepEqual(before, after) {
		updated.SetGeneration(old.GetGeneration() + 1)
	}
	if s.endpoint.Prepare != nil {
		s.endpoint.Prepare(ctx, updated, oldObject.(T))
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *Strategy[T]) ValidateUpdate(_ context.Context, object, oldObject runtime.Object) field.ErrorList {
	updated, old := object.(T), oldObject.(T)
	errs := s.kind.Validate(updated, old)
	if s.endpoint.Validate != nil {
		errs = append(errs, s.endpoint.Validate(updated, old)...)
	}
	return errs
}

// GetResetFieldsFilter keeps the parts that the endpoint does not own out of managedFields. Unlike
// the paths of GetResetFields, a filter can name a field of every item of a list.
func (s *Strategy[T]) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): s}
}

// Filter returns the fields of a set that the endpoint owns.
func (s *Strategy[T]) Filter(set *fieldpath.Set) *fieldpath.Set {
	owned := fieldpath.NewSet()
	set.Iterate(func(path fieldpath.Path) {
		if s.ownsField(path) {
			owned.Insert(path)
		}
	})
	return owned
}

func (s *Strategy[T]) owns(part Part[T]) bool { return slices.Contains(s.endpoint.Owns, part.Name) }

// ownsField returns whether the endpoint owns the part to which a field belongs. A struct that belongs
// to no part belongs to the endpoints that own something in it.
func (s *Strategy[T]) ownsField(path fieldpath.Path) bool {
	owned, longest := false, 0
	for _, part := range s.kind.Parts {
		for _, name := range part.fields() {
			switch d := depth(name, path); {
			case d > longest:
				owned, longest = s.owns(part), d
			case d == 0 && longest == 0:
				owned = owned || s.owns(part)
			}
		}
	}
	return owned
}

// refuse returns why a subresource cannot have what a client sent, which is not prepared yet, or nil. The store reports conflicts
// later.
func (s *Strategy[T]) refuse(object, oldObject runtime.Object) error {
	sent, old := object.(T), oldObject.(T)
	if version := sent.GetResourceVersion(); s.endpoint.Entries == nil || version != "" && version != old.GetResourceVersion() {
		return nil
	}
	entries, _ := s.endpoint.Entries(sent)
	_, known := s.endpoint.Entries(old)
	path := field.NewPath("status", "initializers")
	refusal := field.TooMany(path, len(entries), len(known))
	if len(entries) <= len(known) {
		i := slices.IndexFunc(entries, func(name string) bool { return !slices.Contains(known, name) })
		if i < 0 {
			return nil
		}
		refusal = field.NotSupported(path.Index(i).Child("name"), printable.Shorten(printable.Line(entries[i]), validation.DNS1123SubdomainMaxLength), known)
	}
	kinds, _, err := s.ObjectKinds(old)
	if err != nil {
		return err
	}
	return apierrors.NewInvalid(kinds[0].GroupKind(), old.GetName(), field.ErrorList{refusal})
}

// authorize returns the annotations of the audit log for a valid change, or why its user must not make it.
func (s *Strategy[T]) authorize(ctx context.Context, updated, old runtime.Object) (annotations map[string]string, err error) {
	if s.endpoint.Authorize != nil {
		err = s.endpoint.Authorize(ctx, updated.(T), old.(T))
	}
	if err == nil && s.endpoint.Audit != nil {
		annotations = s.endpoint.Audit(updated.(T), old.(T))
	}
	return annotations, err
}
