/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

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
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
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

// Plugin sets the plan of new NamespaceLifecycles, and refuses a plan of the client.
type Plugin struct {
	*admission.Handler
	source     plan.Source
	checker    *authorization.Checker
	namespaces wants.NamespaceReader
	// cached are the namespaces that a watch shows. Nil: every namespace is read live.
	cached corelisters.NamespaceLister
	merger *plan.Merger
}

var _ interface {
	admission.MutationInterface
	admission.ValidationInterface
	wants.WantsConfigurationSource
	initializer.WantsUnconditionalAuthorizer
	wants.WantsNamespaceReader
	initializer.WantsExternalKubeInformerFactory
} = (*Plugin)(nil)

// New returns a plugin without its dependencies.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), merger: plan.NewMerger()}
}

// SetConfigurationSource implements WantsConfigurationSource.
func (p *Plugin) SetConfigurationSource(source plan.Source) { p.source = source }

// SetUnconditionalAuthorizer implements WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	p.checker = authorization.New(a)
}

// SetNamespaceReader implements WantsNamespaceReader.
func (p *Plugin) SetNamespaceReader(namespaces wants.NamespaceReader) {
	p.namespaces = namespaces
}

// SetExternalKubeInformerFactory implements WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	p.cached = factory.Core().V1().Namespaces().Lister()
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	switch {
	case p.source == nil:
		return errors.New("missing the source of configurations")
	case p.checker == nil:
		return errors.New("missing the authorizer")
	case p.namespaces == nil:
		return errors.New("missing the namespace reader")
	}
	return nil
}

// Admit sets spec.plan and spec.initializers of a new lifecycle, and adds the participants to
// spec.finalizers. The status of a new lifecycle has the condition PlanDegraded or none.
func (p *Plugin) Admit(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	lifecycle, ok := newLifecycle(attributes)
	if !ok {
		return nil
	}
	lifecycle.Status = nsinit.NamespaceLifecycleStatus{}
	plan, degraded, err := p.plan(ctx, attributes, lifecycle)
	if err != nil {
		return err
	}
	remember(ctx, lifecycle, plan, degraded)
	if len(lifecycle.Spec.Plan) > 0 || lifecycle.Spec.Initializers != nil {
		if err := p.checker.MayOpen(ctx, lifecycle.Name); err != nil {
			return authorization.Refusal(attributes.GetResource().GroupResource(), lifecycle.Name,
				fmt.Errorf("the server sets spec.plan and spec.initializers, leave them empty: %w", err))
		}
		return nil
	}
	lifecycle.Spec.Plan = plan
	if len(plan) > 0 {
		lifecycle.Spec.Initializers = &nsinit.NamespaceInitializers{}
	}
	for _, entry := range plan {
		lifecycle.Spec.Initializers.Pending = append(lifecycle.Spec.Initializers.Pending, nsinit.NamespaceInitializer{Name: entry.Name})
		if name := nsinit.FinalizerName(entry.Name); entry.Finalizer && !slices.Contains(lifecycle.Spec.Finalizers, name) {
			lifecycle.Spec.Finalizers = append(lifecycle.Spec.Finalizers, name)
		}
	}
	if degraded != nil {
		lifecycle.Status.Conditions = []metav1.Condition{*degraded}
	}
	return nil
}

// Validate checks that the lifecycle still has the current plan after all mutating plugins. It warns
// of initializers of a configuration that have no effect, and refuses a configuration that the user may not write, that closes
// a cycle, or that makes plans too large.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if err := p.validateConfiguration(ctx, attributes); err != nil {
		return err
	}
	lifecycle, ok := newLifecycle(attributes)
	if !ok {
		return nil
	}
	plan, degraded, known := remembered(ctx, lifecycle)
	if !known {
		var err error
		if plan, degraded, err = p.plan(ctx, attributes, lifecycle); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(plan, lifecycle.Spec.Plan) && waitsForAll(lifecycle) && reports(lifecycle, degraded) {
		return nil
	}
	if err := p.checker.MayOpen(ctx, lifecycle.Name); err == nil {
		return nil
	}
	return apierrors.NewConflict(attributes.GetResource().GroupResource(), lifecycle.Name,
		errors.New("spec.plan, spec.initializers, spec.finalizers or status.conditions differ from what the configurations and the namespace give: create the NamespaceLifecycle again, without a plan"))
}

// plan returns the current plan for the namespace of a lifecycle, and the condition PlanDegraded or nil. The plan is empty
// if the namespace is open. A namespace that cannot be read, is being deleted, or has another UID is an error.
func (p *Plugin) plan(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) ([]nsinit.PlannedInitializer, *metav1.Condition, error) {
	namespace, err := p.namespace(ctx, attributes, lifecycle)
	if err != nil || !helper.IsClosed(namespace) {
		return nil, nil, err
	}
	configurations, err := p.source.Configurations(ctx)
	if err != nil {
		return nil, nil, utilapierrors.NewUnavailable(fmt.Errorf("cannot determine which initializers namespace %q needs: %w", lifecycle.Name, err))
	}
	merged := p.merger.Merge(configurations, namespace)
	var spec nsinit.NamespaceLifecycleSpec
	err = v1alpha1.Convert_v1alpha1_NamespaceLifecycleSpec_To_nsinit_NamespaceLifecycleSpec(&v1alpha1.NamespaceLifecycleSpec{Plan: merged.Entries}, &spec, nil)
	return spec.Plan, merged.Condition(), err
}

// namespace reads the namespace of a lifecycle. A cached namespace suffices if it has the right UID and is closed: it got
// its label when it was created, and no namespace gets it later. If it was opened or deleted since, the controller finds
// that out when it takes the next step. Every other answer of the cache is replaced by a live read.
func (p *Plugin) namespace(ctx context.Context, attributes admission.Attributes, lifecycle *nsinit.NamespaceLifecycle) (*corev1.Namespace, error) {
	if errs := unnamed(lifecycle); len(errs) > 0 {
		return nil, apierrors.NewInvalid(attributes.GetKind().GroupKind(), lifecycle.Name, errs)
	}
	if p.cached != nil {
		namespace, err := p.cached.Get(lifecycle.Name)
		if err == nil && namespace.UID == lifecycle.Spec.NamespaceUID && namespace.DeletionTimestamp == nil && helper.IsClosed(namespace) {
			return namespace, nil
		}
	}
	namespace, err := p.namespaces(ctx, lifecycle.Name, metav1.GetOptions{})
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

// validateConfiguration checks a written configuration. It refuses entries of initializers that the user may not register,
// initializers that wait for each other, and plans that are too large to store. It adds a warning to the response for each
// initializer that has no effect, as the condition NamesAccepted reports, or that no program serves, and for each predecessor
// that does not exist. If the configurations cannot be read, it only checks the rights of the user.
func (p *Plugin) validateConfiguration(ctx context.Context, attributes admission.Attributes) error {
	written, ok := attributes.GetObject().(*nsinit.NamespaceInitializerConfiguration)
	if !ok || attributes.GetSubresource() != "" {
		return nil
	}
	if err := p.authorizeRegistration(ctx, attributes, written); err != nil || written.DeletionTimestamp != nil {
		return err
	}
	var configuration v1alpha1.NamespaceInitializerConfiguration
	all, err := p.source.Configurations(ctx)
	if err == nil {
		err = v1alpha1.Convert_nsinit_NamespaceInitializerConfiguration_To_v1alpha1_NamespaceInitializerConfiguration(written, &configuration, nil)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot compare a configuration with the others", "configuration", written.Name, "err", err)
		return nil
	}
	if errs := append(plan.ValidateOrder(&configuration, all), plan.ValidateSize(&configuration, all)...); len(errs) > 0 {
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), written.Name, errs)
	}
	for _, message := range slices.Concat(plan.Ineffective(&configuration, all), plan.UnknownPredecessors(&configuration, all), unserved(written)) {
		warning.AddWarning(ctx, "", message)
	}
	return nil
}

// authorizeRegistration refuses to add, change or remove an entry of an initializer that the user may not register.
func (p *Plugin) authorizeRegistration(ctx context.Context, attributes admission.Attributes, written *nsinit.NamespaceInitializerConfiguration) error {
	var former []nsinit.RegisteredInitializer
	if old, ok := attributes.GetOldObject().(*nsinit.NamespaceInitializerConfiguration); ok {
		former = old.Initializers
	}
	for _, entry := range slices.Concat(written.Initializers, former) {
		same := func(other nsinit.RegisteredInitializer) bool { return equality.Semantic.DeepEqual(entry, other) }
		if slices.ContainsFunc(written.Initializers, same) && slices.ContainsFunc(former, same) {
			continue
		}
		if err := p.checker.MayRegister(ctx, entry.Name); err != nil {
			return authorization.Refusal(attributes.GetResource().GroupResource(), written.Name,
				fmt.Errorf("initializers: cannot add, change or remove the entry of %q without the verb %q on all namespaces: %w", entry.Name, v1alpha1.VerbOpen, err))
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

// waitsForAll says whether every planned initializer is pending, and every participant is a finalizer.
func waitsForAll(lifecycle *nsinit.NamespaceLifecycle) bool {
	var pending []nsinit.NamespaceInitializer
	if lifecycle.Spec.Initializers != nil {
		pending = lifecycle.Spec.Initializers.Pending
	}
	return slices.EqualFunc(lifecycle.Spec.Plan, pending, func(planned nsinit.PlannedInitializer, entry nsinit.NamespaceInitializer) bool {
		return planned.Name == entry.Name && (!planned.Finalizer || slices.Contains(lifecycle.Spec.Finalizers, nsinit.FinalizerName(planned.Name)))
	})
}

// reports says whether a lifecycle has the condition PlanDegraded that its plan has, apart from the time.
func reports(lifecycle *nsinit.NamespaceLifecycle, degraded *metav1.Condition) bool {
	reported := meta.FindStatusCondition(lifecycle.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	if reported == nil || degraded == nil {
		return reported == degraded
	}
	return reported.Status == degraded.Status && reported.Reason == degraded.Reason && reported.Message == degraded.Message
}
