/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// ValidateNamespaceLifecycle validates a write to a NamespaceLifecycle through any endpoint. For a new one, old is nil. Its name must be
// one that a core Namespace can have. The result of a failed initialization has the name of the initializer that failed, which
// must have its turn in a new one.
func ValidateNamespaceLifecycle(lifecycle, old *nsinit.NamespaceLifecycle) field.ErrorList {
	errs := validateMeta(lifecycle, old, apivalidation.ValidateNamespaceName)
	if old != nil {
		errs = append(errs, validateUID(lifecycle.Spec.NamespaceUID, old.Spec.NamespaceUID)...)
	}
	spec := field.NewPath("spec")
	var planned []v1alpha1.RegisteredInitializer
	for i, entry := range lifecycle.Spec.Plan {
		planned = append(planned, entry.RegisteredInitializer)
		path := spec.Child("plan").Index(i)
		errs = append(errs, validateInitializerName(entry.Name, path.Child("name"))...)
		errs = append(errs, validateDeadline(&entry.RegisteredInitializer, path)...)
		errs = append(errs, validateSelected(&entry.RegisteredInitializer, path)...)
		if slices.ContainsFunc(lifecycle.Spec.Plan[:i], func(other v1alpha1.PlannedInitializer) bool { return other.Name == entry.Name }) {
			errs = append(errs, field.Duplicate(path.Child("name"), entry.Name))
		}
		switch {
		case entry.Name == v1alpha1.InitializerLifecycle && entry.Configuration != nil:
			errs = append(errs, field.Forbidden(path.Child("configuration"), "the built-in initializer belongs to no configuration"))
		case entry.Name != v1alpha1.InitializerLifecycle && (entry.Configuration == nil || entry.Configuration.Name == ""):
			errs = append(errs, field.Required(path.Child("configuration", "name"), "name the configuration that registered the initializer"))
		}
	}
	errs = append(errs, validateOrder(planned, spec.Child("plan"))...)
	errs = append(errs, validateInitializers(lifecycle, spec.Child("initializers"))...)
	errs = append(errs, validateFinalizers(lifecycle.Spec.Finalizers, spec.Child("finalizers"))...)
	errs = append(errs, validateLifecycleStatus(&lifecycle.Status, field.NewPath("status"))...)
	if old == nil && lifecycle.Failure() != nil {
		errs = append(errs, validateFailed(lifecycle.Spec.Initializers.FailedInitializer, lifecycle.CurrentInitializers(), spec.Child("initializers", "failedInitializer"))...)
	}
	return errs
}

// validateInitializers checks that the pending initializers are in the plan, in its order.
func validateInitializers(lifecycle *nsinit.NamespaceLifecycle, path *field.Path) field.ErrorList {
	initializers := lifecycle.Spec.Initializers
	if initializers == nil {
		return nil
	}
	var errs field.ErrorList
	next := 0
	for i, entry := range initializers.Pending {
		if entry.Name == "" {
			continue // reported by the generated validation
		}
		planned := slices.IndexFunc(lifecycle.Spec.Plan, func(p v1alpha1.PlannedInitializer) bool { return p.Name == entry.Name })
		at := path.Child("pending").Index(i).Child("name")
		switch {
		case planned < 0:
			errs = append(errs, field.Invalid(at, entry.Name, "is not in spec.plan"))
		case planned < next:
			errs = append(errs, field.Invalid(at, entry.Name, "is not in the order of spec.plan"))
		}
		next = planned + 1
	}
	if name := initializers.FailedInitializer; name != "" {
		at := path.Child("failedInitializer")
		switch {
		case initializers.Result == nil:
			errs = append(errs, field.Forbidden(at, "may only be set together with result"))
		case !slices.Contains(lifecycle.Pending(), name):
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("is not in spec.initializers.pending, which is %q", lifecycle.Pending())))
		}
	}
	if result := initializers.Result; result != nil {
		if result.Status != metav1.StatusFailure {
			errs = append(errs, field.NotSupported(path.Child("result", "status"), result.Status, []string{metav1.StatusFailure}))
		}
		if len(initializers.Pending) == 0 {
			errs = append(errs, field.Forbidden(path.Child("result"), "may only be set while an initializer is pending"))
		}
	}
	return errs
}

func validateLifecycleStatus(status *v1alpha1.NamespaceLifecycleStatus, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))
	for i, entry := range status.Initializers {
		if len(entry.Message) > v1alpha1.MaxMessageLength {
			errs = append(errs, field.TooLong(path.Child("initializers").Index(i).Child("message"), "", v1alpha1.MaxMessageLength))
		}
	}
	return errs
}

// ValidateInitialize validates a change of spec.initializers: an entry is removed when none of its predecessors is
// pending, or together with those that are. None is added, moved or replaced. A result is set once, by an initializer
// that has its turn, and never removed. A complete initialization stays complete.
func ValidateInitialize(updated, old *nsinit.NamespaceLifecycle) field.ErrorList {
	path := field.NewPath("spec", "initializers")
	before, after := old.Pending(), updated.Pending()
	var errs field.ErrorList
	if len(before) == 0 && len(after) > 0 {
		errs = append(errs, field.Forbidden(path.Child("pending"), "the initialization is complete, and that is final"))
	} else {
		errs = append(errs, validateRemoval(updated, old, path.Child("pending"))...)
	}
	for i, name := range updated.Spec.Skipped {
		waited := slices.Contains(before, name)
		waits := slices.Contains(after, name)
		if !slices.Contains(old.Spec.Skipped, name) && (!waited || waits) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "skipped").Index(i), name,
				fmt.Sprintf("only an initializer that the same request removes from spec.initializers.pending can be skipped: pending is %q", before)))
		}
	}
	oldResult, newResult := result(old), result(updated)
	switch {
	case oldResult != nil && !equality.Semantic.DeepEqual(oldResult, newResult):
		errs = append(errs, field.Forbidden(path.Child("result"), "the initialization has failed, and that is final"))
	case oldResult != nil && len(after) != len(before):
		errs = append(errs, field.Forbidden(path.Child("pending"), "the initialization has failed: the namespace is being deleted and nothing more can be initialized"))
	case oldResult != nil && old.Spec.Initializers.FailedInitializer != updated.Spec.Initializers.FailedInitializer:
		errs = append(errs, field.Forbidden(path.Child("failedInitializer"), "the initialization has failed, and that is final"))
	case oldResult == nil && newResult != nil && len(after) != len(before):
		errs = append(errs, field.Forbidden(path.Child("result"), "an initializer either fails or removes itself: send one of the two"))
	case oldResult == nil && newResult != nil:
		errs = append(errs, validateFailed(updated.Spec.Initializers.FailedInitializer, old.CurrentInitializers(), path.Child("failedInitializer"))...)
	}
	return errs
}

// validateRemoval checks that no removed initializer waits for one that is pending, and that the others stay.
func validateRemoval(updated, old *nsinit.NamespaceLifecycle, path *field.Path) field.ErrorList {
	before, after := old.Pending(), updated.Pending()
	kept := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return !slices.Contains(after, name) })
	if !slices.Equal(kept, after) {
		return field.ErrorList{field.Invalid(path, after, fmt.Sprintf("entries can only be removed: pending is %q", before))}
	}
	var errs field.ErrorList
	for _, name := range before {
		if slices.Contains(after, name) {
			continue
		}
		if waits := slices.DeleteFunc(old.Predecessors(name), func(p string) bool { return !slices.Contains(after, p) }); len(waits) > 0 {
			errs = append(errs, field.Invalid(path, after, fmt.Sprintf("%q waits for %q, and can only be removed after them", name, waits)))
		}
	}
	return errs
}

// validateFailed checks that the initializer that failed has its turn.
func validateFailed(name string, current []string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("name the initializer that failed, one of %q", current))}
	case !slices.Contains(current, name):
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("only an initializer that has its turn can fail, one of %q", current))}
	}
	return nil
}

// ValidateFinalize validates a change of spec.finalizers: the remaining names keep their order.
// Authorization decides who can add names.
func ValidateFinalize(updated, old []v1alpha1.FinalizerName) field.ErrorList {
	kept := slices.DeleteFunc(slices.Clone(updated), func(name v1alpha1.FinalizerName) bool { return !slices.Contains(old, name) })
	before := slices.DeleteFunc(slices.Clone(old), func(name v1alpha1.FinalizerName) bool { return !slices.Contains(updated, name) })
	if !slices.Equal(kept, before) {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "finalizers"), updated, fmt.Sprintf("the order must be kept: it was %q", old))}
	}
	return nil
}

func result(lifecycle *nsinit.NamespaceLifecycle) *metav1.Status {
	if lifecycle.Spec.Initializers == nil {
		return nil
	}
	return lifecycle.Spec.Initializers.Result
}
