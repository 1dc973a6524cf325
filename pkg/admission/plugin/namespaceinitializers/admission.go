/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package namespaceinitializers holds the admission plugin NamespaceInitializers. When
// the record of a namespace is created, the plugin reads the namespace live and writes
// into the record which initializers are in force at that moment. Nobody else decides
// that, save holders of the verb open. When a configuration is written, the plugin warns of
// initializers that have no effect.
package namespaceinitializers

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/nsinit/nsinit/pkg/admission/plan"
	"github.com/nsinit/nsinit/pkg/admission/wants"
	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/authorization"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// PluginName is the name of the plugin, as in the Namespace Initializer KEP.
const PluginName = "NamespaceInitializers"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin fills the plan of new records, and sees that nobody else does.
type Plugin struct {
	*admission.Handler
	source     plan.Source
	checker    *authorization.Checker
	namespaces wants.NamespaceReader
}

var _ interface {
	admission.MutationInterface
	admission.ValidationInterface
	wants.WantsConfigurationSource
	wants.WantsAuthorizationChecker
	wants.WantsNamespaceReader
} = (*Plugin)(nil)

// New returns a plugin that waits for its dependencies.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetConfigurationSource implements WantsConfigurationSource.
func (p *Plugin) SetConfigurationSource(source plan.Source) { p.source = source }

// SetAuthorizationChecker implements WantsAuthorizationChecker.
func (p *Plugin) SetAuthorizationChecker(checker *authorization.Checker) { p.checker = checker }

// SetNamespaceReader implements WantsNamespaceReader.
func (p *Plugin) SetNamespaceReader(namespaces wants.NamespaceReader) {
	p.namespaces = namespaces
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	switch {
	case p.source == nil:
		return errors.New("missing the source of configurations")
	case p.checker == nil:
		return errors.New("missing the authorization checker")
	case p.namespaces == nil:
		return errors.New("missing the reader of namespaces")
	}
	return nil
}

// Admit fills spec.plan and spec.initializers of a new record, and puts the participants
// that act at termination into spec.finalizers.
func (p *Plugin) Admit(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	lifecycle, ok := newLifecycle(attributes)
	if !ok {
		return nil
	}
	plan, err := p.plan(ctx, attributes, lifecycle)
	if err != nil {
		return err
	}
	if given(lifecycle) {
		return p.mayGive(ctx, attributes, lifecycle)
	}
	lifecycle.Spec.Plan = plan
	lifecycle.Spec.Initializers = nil
	for _, entry := range plan {
		if lifecycle.Spec.Initializers == nil {
			lifecycle.Spec.Initializers = &nsinit.NamespaceInitializers{}
		}
		lifecycle.Spec.Initializers.Pending = append(lifecycle.Spec.Initializers.Pending, nsinit.NamespaceInitializer{Name: entry.Name})
		if name := nsinit.FinalizerName(entry.Name); entry.Finalizer && !slices.Contains(lifecycle.Spec.Finalizers, name) {
			lifecycle.Spec.Finalizers = append(lifecycle.Spec.Finalizers, name)
		}
	}
	return nil
}

// Validate sees that the record still carries the plan that is in force, after every
// plugin had its say. It warns of initializers of a configuration that have no effect.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	p.warn(ctx, attributes)
	lifecycle, ok := newLifecycle(attributes)
	if !ok {
		return nil
	}
	plan, err := p.plan(ctx, attributes, lifecycle)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(plan, lifecycle.Spec.Plan) && waitsForAll(lifecycle) {
		return nil
	}
	if err := p.checker.MayOpen(ctx, lifecycle.Name); err == nil {
		return nil
	}
	return apierrors.NewConflict(attributes.GetResource().GroupResource(), lifecycle.Name,
		errors.New("spec.plan is not what the configurations say now: they changed during the request; create the record again, without a plan"))
}

// plan returns what is in force for the record's namespace. It is empty where the
// namespace is open already. Every other doubt about the namespace is an error.
func (p *Plugin) plan(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) ([]nsinit.PlannedInitializer, error) {
	if errs := unnamed(lifecycle); len(errs) > 0 {
		return nil, apierrors.NewInvalid(attributes.GetKind().GroupKind(), lifecycle.Name, errs)
	}
	namespace, err := p.namespaces(ctx, lifecycle.Name)
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
	if !helper.IsClosed(namespace) {
		return nil, nil
	}
	configurations, err := p.source.Configurations()
	if err != nil {
		return nil, utilapierrors.NewUnavailable(fmt.Errorf("cannot tell which initializers namespace %q needs: %w", lifecycle.Name, err))
	}
	var spec nsinit.NamespaceLifecycleSpec
	err = v1alpha1.Convert_v1alpha1_NamespaceLifecycleSpec_To_nsinit_NamespaceLifecycleSpec(&v1alpha1.NamespaceLifecycleSpec{Plan: plan.Merge(configurations)}, &spec, nil)
	return spec.Plan, err
}

// warn adds a warning to the response for each initializer of a written configuration that has no effect. Its
// condition NamesAccepted reports the same. The request succeeds in any case.
func (p *Plugin) warn(ctx context.Context, attributes admission.Attributes) {
	written, ok := attributes.GetObject().(*nsinit.NamespaceInitializerConfiguration)
	if !ok || attributes.GetSubresource() != "" || written.DeletionTimestamp != nil {
		return
	}
	var configuration v1alpha1.NamespaceInitializerConfiguration
	all, err := p.source.List(ctx)
	if err == nil {
		err = v1alpha1.Convert_nsinit_NamespaceInitializerConfiguration_To_v1alpha1_NamespaceInitializerConfiguration(written, &configuration, nil)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot check whether the initializers of a configuration have an effect", "configuration", written.Name, "err", err)
	}
	for _, message := range plan.Ineffective(&configuration, all) {
		warning.AddWarning(ctx, "", message)
	}
}

// terminating refuses the record of a namespace that is on its way out, with the cause that clients know
// from the core API.
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

// unnamed returns why a record cannot be that of a namespace. Validation says the same, but comes
// after the namespace was read.
func unnamed(lifecycle *nsinit.NamespaceLifecycle) field.ErrorList {
	path := field.NewPath("metadata", "name")
	if lifecycle.Name == "" {
		return field.ErrorList{field.Required(path, "give the name of the namespace that the record describes; it cannot be generated")}
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.ValidateNamespaceName(lifecycle.Name, false) {
		errs = append(errs, field.Invalid(path, lifecycle.Name, problem))
	}
	return errs
}

// mayGive decides whether the caller may bring a plan of its own.
func (p *Plugin) mayGive(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) error {
	if err := p.checker.MayOpen(ctx, lifecycle.Name); err != nil {
		return authorization.Refusal(attributes.GetResource().GroupResource(), lifecycle.Name, fmt.Errorf("spec.plan and spec.initializers are filled by the server, leave them out: %w", err))
	}
	return nil
}

// newRecord returns the record that a request creates. Posts to subresources are
// creations, too, as far as admission is concerned, but not of records.
func newLifecycle(attributes admission.Attributes) (*nsinit.NamespaceLifecycle, bool) {
	if attributes.GetOperation() != admission.Create || attributes.GetResource().GroupResource() != nsinit.Resource("namespacelifecycles") || attributes.GetSubresource() != "" {
		return nil, false
	}
	lifecycle, ok := attributes.GetObject().(*nsinit.NamespaceLifecycle)
	return lifecycle, ok
}

func given(lifecycle *nsinit.NamespaceLifecycle) bool {
	return len(lifecycle.Spec.Plan) > 0 || lifecycle.Spec.Initializers != nil
}

// waitsForAll says whether every planned initializer is pending, and every participant
// of the termination registered.
func waitsForAll(lifecycle *nsinit.NamespaceLifecycle) bool {
	var pending []nsinit.NamespaceInitializer
	if lifecycle.Spec.Initializers != nil {
		pending = lifecycle.Spec.Initializers.Pending
	}
	return slices.EqualFunc(lifecycle.Spec.Plan, pending, func(planned nsinit.PlannedInitializer, entry nsinit.NamespaceInitializer) bool {
		return planned.Name == entry.Name && (!planned.Finalizer || slices.Contains(lifecycle.Spec.Finalizers, nsinit.FinalizerName(planned.Name)))
	})
}
