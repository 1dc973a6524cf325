/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/pkg/plan"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// NamespaceInitializersName is the name of the plugin NamespaceInitializers, as in the Namespace Initializer KEP.
const NamespaceInitializersName = "NamespaceInitializers"

// NamespaceInitializers sets the plan of new NamespaceLifecycles, and refuses a plan of the client. It checks configurations.
type NamespaceInitializers struct {
	dependent
	merger    *plan.Merger
	selection *expressions.Selection
}

var _ interface {
	admission.MutationInterface
	admission.ValidationInterface
} = (*NamespaceInitializers)(nil)

// NewNamespaceInitializers returns the plugin without its dependencies.
func NewNamespaceInitializers() *NamespaceInitializers {
	handler := admission.NewHandler(admission.Create, admission.Update, admission.Delete)
	return &NamespaceInitializers{dependent{Handler: handler}, plan.NewMerger(), expressions.NewSelection()}
}

// Admit sets spec.plan and spec.initializers of a new lifecycle, and adds the participants to
// spec.finalizers. The status of a new lifecycle has the condition PlanDegraded or none.
func (p *NamespaceInitializers) Admit(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	lifecycle, ok := newLifecycle(attributes)
	if !ok {
		return nil
	}
	lifecycle.Status = v1alpha1.NamespaceLifecycleStatus{}
	plan, degraded, err := p.plan(ctx, attributes, lifecycle)
	if err != nil {
		return err
	}
	if len(lifecycle.Spec.Plan) > 0 || lifecycle.Spec.Initializers != nil {
		if err := p.Checker.MayOpen(ctx, lifecycle.Name); err != nil {
			return authorization.Refusal(attributes.GetResource().GroupResource(), lifecycle.Name,
				fmt.Errorf("the server sets spec.plan and spec.initializers, leave them empty: %w", err))
		}
		return nil
	}
	lifecycle.Spec.Plan = plan
	if len(plan) > 0 {
		lifecycle.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
	}
	for _, entry := range plan {
		lifecycle.Spec.Initializers.Pending = append(lifecycle.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: entry.Name})
		if name := v1alpha1.FinalizerName(entry.Name); entry.Finalizer && !slices.Contains(lifecycle.Spec.Finalizers, name) {
			lifecycle.Spec.Finalizers = append(lifecycle.Spec.Finalizers, name)
		}
	}
	if degraded != nil {
		lifecycle.Status.Conditions = []metav1.Condition{*degraded}
	}
	return nil
}

// plan returns the current plan for the namespace of a lifecycle, and the condition PlanDegraded or nil. The plan is empty
// if the namespace is open. A namespace that cannot be read, is being deleted, or has another UID is an error.
func (p *NamespaceInitializers) plan(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) ([]v1alpha1.PlannedInitializer, *metav1.Condition, error) {
	namespace, err := p.namespace(ctx, attributes, lifecycle)
	if err != nil || !helper.IsClosed(namespace) {
		return nil, nil, err
	}
	configurations, err := p.Configurations(ctx)
	if err != nil {
		return nil, nil, utilapierrors.NewUnavailable(fmt.Errorf("cannot determine which initializers namespace %q needs: %w", lifecycle.Name, err))
	}
	merged := p.merger.Merge(configurations, namespace)
	return merged.Entries, merged.Condition(), nil
}

// namespace reads the namespace of a lifecycle. A cached namespace suffices if it has the right UID and is closed: it got
// its label when it was created, and no namespace gets it later. If it was opened or deleted since, the controller finds
// that out when it takes the next step. Every other answer of the cache is replaced by a live read.
func (p *NamespaceInitializers) namespace(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) (*corev1.Namespace, error) {
	if errs := unnamed(lifecycle); len(errs) > 0 {
		return nil, apierrors.NewInvalid(attributes.GetKind().GroupKind(), lifecycle.Name, errs)
	}
	if p.Cached != nil {
		namespace, err := p.Cached.Get(lifecycle.Name)
		if err == nil && namespace.UID == lifecycle.Spec.NamespaceUID && namespace.DeletionTimestamp == nil && helper.IsClosed(namespace) {
			return namespace, nil
		}
	}
	namespace, err := p.Namespace(ctx, lifecycle.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, err
		}
		return nil, utilapierrors.NewUnavailable(fmt.Errorf("cannot read namespace %q: %w", lifecycle.Name, err))
	}
	if lifecycle.Spec.NamespaceUID != namespace.UID {
		return nil, apierrors.NewConflict(attributes.GetResource().GroupResource(), lifecycle.Name,
			fmt.Errorf("spec.namespaceUID is %q, but the UID of namespace %q is %q", lifecycle.Spec.NamespaceUID, lifecycle.Name, namespace.UID))
	}
	if namespace.DeletionTimestamp != nil {
		return nil, terminating(attributes, lifecycle.Name)
	}
	return namespace, nil
}

// Validate checks a written configuration. It refuses entries of initializers that the user may not register,
// initializers that wait for each other, and plans that are too large to store. It adds a warning to the response for each
// initializer that has no effect, as the condition NamesAccepted reports, or that no program serves, and for each predecessor
// that does not exist. If the configurations cannot be read, it only checks the rights of the user.
func (p *NamespaceInitializers) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetSubresource() != "" {
		return nil
	}
	updated, isUpdate := attributes.GetObject().(*nsinit.InitializerConfiguration)
	if former, ok := attributes.GetOldObject().(*nsinit.InitializerConfiguration); ok || isUpdate {
		return p.validateObjects(ctx, attributes, updated, former)
	}
	written, ok := attributes.GetObject().(*nsinit.NamespaceInitializerConfiguration)
	if !ok {
		return nil
	}
	var former []v1alpha1.RegisteredInitializer
	if old, ok := attributes.GetOldObject().(*nsinit.NamespaceInitializerConfiguration); ok {
		former = old.Initializers
	}
	name := func(entry v1alpha1.RegisteredInitializer) string { return entry.Name }
	if err := authorizeRegistration(ctx, p.Checker, attributes, name, written.Initializers, former); err != nil || written.DeletionTimestamp != nil {
		return err
	}
	all, err := p.Configurations(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Cannot compare a configuration with the others", "configuration", written.Name, "err", err)
		return nil
	}
	configuration := versioned(written)
	if errs := append(plan.ValidateOrder(configuration, all), plan.ValidateSize(configuration, all)...); len(errs) > 0 {
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), written.Name, errs)
	}
	for _, message := range slices.Concat(plan.Ineffective(configuration, all), plan.UnknownPredecessors(configuration, all), unserved(written, written.Initializers, "namespaces")) {
		warning.AddWarning(ctx, "", message)
	}
	return nil
}

// validateObjects does the same for a configuration of pods and Jobs. It also authorizes a deletion, which removes all entries and so
// releases the objects that wait.
func (p *NamespaceInitializers) validateObjects(ctx context.Context, attributes admission.Attributes, written, old *nsinit.InitializerConfiguration) error {
	var initializers, former []v1alpha1.Initializer
	if written != nil {
		initializers = written.Initializers
	}
	if old != nil {
		former = old.Initializers
	}
	name := func(entry v1alpha1.Initializer) string { return entry.Name }
	if err := authorizeRegistration(ctx, p.Checker, attributes, name, initializers, former); err != nil || written == nil || written.DeletionTimestamp != nil {
		return err
	}
	all, err := p.ObjectConfigurations(ctx)
	if err != nil {
		return utilapierrors.NewUnavailable(fmt.Errorf("cannot compare InitializerConfiguration %q with the others: %w", written.Name, err))
	}
	var others []v1alpha1.Initializer
	for _, other := range all {
		if other.Name != written.Name {
			others = append(others, other.Initializers...)
		}
	}
	if errs := plan.ValidateObjects(initializers, former, others, p.selection.Cost); len(errs) > 0 {
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), written.Name, errs)
	}
	var registered []v1alpha1.RegisteredInitializer
	for _, entry := range written.Initializers {
		registered = append(registered, v1alpha1.RegisteredInitializer{Name: entry.Name, FailurePolicy: entry.FailurePolicy, Activation: entry.Activation})
	}
	for _, message := range unserved(written, registered, "pods and Jobs") {
		warning.AddWarning(ctx, "", message)
	}
	return nil
}

// authorizeRegistration refuses to add, change or remove an entry of an initializer that the user may not register, and to change the order
// of several such entries.
func authorizeRegistration[E any](ctx context.Context, checker *authorization.Checker, attributes admission.Attributes, name func(E) string, written, former []E) error {
	refusal := func(what, entry string, err error) error {
		return authorization.Refusal(attributes.GetResource().GroupResource(), attributes.GetName(),
			fmt.Errorf("initializers: cannot %s the entry of %q without the verb %q on all namespaces: %w", what, entry, v1alpha1.VerbOpen, err))
	}
	kept := func(entries, others []E) (names []string, changed []E) {
		for _, entry := range entries {
			if slices.ContainsFunc(others, func(other E) bool { return equality.Semantic.DeepEqual(entry, other) }) {
				names = append(names, name(entry))
			} else {
				changed = append(changed, entry)
			}
		}
		return names, changed
	}
	after, added := kept(written, former)
	before, removed := kept(former, written)
	for _, entry := range slices.Concat(added, removed) {
		if err := checker.MayRegister(ctx, name(entry)); err != nil {
			return refusal("add, change or remove", name(entry), err)
		}
	}
	if slices.Equal(after, before) {
		return nil
	}
	denied := map[string]error{}
	for _, entry := range before {
		denied[entry] = checker.MayRegister(ctx, entry)
	}
	may := func(entry string) bool { return denied[entry] == nil }
	others := slices.DeleteFunc(before, may) // that the user may not register
	for i, entry := range slices.DeleteFunc(after, may) {
		if i >= len(others) || others[i] != entry {
			return refusal("move", entry, denied[entry])
		}
	}
	return nil
}

// terminating refuses the lifecycle of a namespace that is being deleted, with the cause that the core
// API returns.
func terminating(attributes admission.Attributes, namespace string) error {
	err := admission.NewForbidden(attributes, fmt.Errorf("namespace %q is being terminated", namespace))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", namespace),
			Field:   "metadata.name",
		})
	}
	return err
}

// unnamed returns why the name of a lifecycle cannot be that of a namespace. Validation returns the
// same errors, but runs after the namespace was read.
func unnamed(lifecycle *nsinit.NamespaceLifecycle) field.ErrorList {
	path := field.NewPath("metadata", "name")
	if lifecycle.Name == "" {
		return field.ErrorList{field.Required(path, "set the name of the namespace; it cannot be generated")}
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.ValidateNamespaceName(lifecycle.Name, false) {
		errs = append(errs, field.Invalid(path, lifecycle.Name, problem))
	}
	return errs
}

// newLifecycle returns the lifecycle that a request creates. For admission, a POST to a subresource
// has the operation CREATE too.
func newLifecycle(attributes admission.Attributes) (*nsinit.NamespaceLifecycle, bool) {
	if attributes.GetOperation() != admission.Create || attributes.GetResource().GroupResource() != nsinit.Resource("namespacelifecycles") || attributes.GetSubresource() != "" {
		return nil, false
	}
	lifecycle, ok := attributes.GetObject().(*nsinit.NamespaceLifecycle)
	return lifecycle, ok
}
