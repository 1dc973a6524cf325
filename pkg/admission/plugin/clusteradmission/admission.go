/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package clusteradmission holds the admission plugins of k8s.io/apiserver that evaluate the policies and webhooks of the
// cluster: MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy and ValidatingAdmissionWebhook.
// kube-apiserver proxies requests for nsinit's kinds before it evaluates them.
//
// The plugins evaluate writes of NamespaceInitializerConfigurations and NamespacePopulations, which users write. They never
// evaluate another request, so no policy and no webhook can keep a namespace closed or prevent its deletion:
//
//   - A namespace opens and ends by writes to its NamespaceLifecycle and its subresources.
//   - policy-population writes PopulatedNamespaces while namespaces wait for it.
//   - Programs write the subresources of configurations and populations. If a webhook refused the report that an initializer
//     is served, namespaces would open without the initializer while its activation is WhenServed. If it refused the
//     release of a deleted configuration, the configuration would stay. A subresource changes neither metadata nor
//     initializers, so it does not bypass a policy for the object.
package clusteradmission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/nsinit/nsinit/pkg/admission/wants"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// Order returns the names of the plugins, in the order of kube-apiserver.
func Order() []string {
	return []string{mutatingpolicy.PluginName, mutatingwebhook.PluginName, validatingpolicy.PluginName, validatingwebhook.PluginName}
}

// Resources returns the resources that the plugins evaluate, without their subresources.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"),
		v1alpha1.SchemeGroupVersion.WithResource("namespacepopulations"),
	}
}

// Register registers the plugins.
func Register(plugins *admission.Plugins) {
	registerMutating(plugins, mutatingpolicy.PluginName, mutatingpolicy.NewPlugin)
	registerMutating(plugins, mutatingwebhook.PluginName, mutatingwebhook.NewMutatingWebhook)
	registerValidating(plugins, validatingpolicy.PluginName, validatingpolicy.NewPlugin)
	registerValidating(plugins, validatingwebhook.PluginName, validatingwebhook.NewValidatingAdmissionWebhook)
}

func registerMutating[P admission.MutationInterface](plugins *admission.Plugins, name string, create func(io.Reader) (P, error)) {
	plugins.Register(name, func(config io.Reader) (admission.Interface, error) {
		inner, err := create(config)
		return &mutating{plugin{Interface: inner, name: name}, inner}, err
	})
}

func registerValidating[P admission.ValidationInterface](plugins *admission.Plugins, name string, create func(io.Reader) (P, error)) {
	plugins.Register(name, func(config io.Reader) (admission.Interface, error) {
		inner, err := create(config)
		return &validating{plugin{Interface: inner, name: name}, inner}, err
	})
}

// plugin decides which requests an inner plugin evaluates.
type plugin struct {
	admission.Interface
	name    string
	cluster wants.ClusterAdmission
}

var _ wants.WantsClusterAdmission = (*plugin)(nil)

// SetClusterAdmission implements WantsClusterAdmission.
func (p *plugin) SetClusterAdmission(cluster wants.ClusterAdmission) { p.cluster = cluster }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.cluster == nil {
		return errors.New("missing the registrations of the cluster")
	}
	if err := p.cluster.Prepare(p.name, p.Interface); err != nil {
		return err
	}
	return admission.ValidateInitialization(p.Interface)
}

// evaluate calls the inner plugin if it evaluates a request. If the plugin does not know the registrations yet, the request
// is refused, and clients of Kubernetes repeat it.
func (p *plugin) evaluate(attributes admission.Attributes, inner func() error) error {
	if attributes.GetSubresource() != "" || !slices.Contains(Resources(), attributes.GetResource()) {
		return nil
	}
	served, err := p.cluster.Ready(p.name)
	if err != nil {
		return utilapierrors.NewUnavailable(fmt.Errorf("%s %q cannot be written: nsinit-apiserver cannot evaluate the plugin %s: %w; "+
			"if this lasts, check that the ClusterRole nsinit:apiserver is that of this version",
			attributes.GetResource().Resource, attributes.GetName(), p.name, err))
	}
	if !served {
		return nil
	}
	return withRemedy(inner())
}

// withRemedy says in a refusal how nsinit-apiserver is allowed to read the parameters of a policy.
func withRemedy(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !strings.Contains(status.ErrStatus.Message, "not yet synced to use for admission") {
		return err
	}
	status.ErrStatus.Message += fmt.Sprintf("; if this lasts, allow the service account %s/%s to get, list and watch this kind",
		installation.Namespace(), installation.APIServer)
	return status
}

type mutating struct {
	plugin
	inner admission.MutationInterface
}

var _ admission.MutationInterface = (*mutating)(nil)

// Admit implements admission.MutationInterface.
func (m *mutating) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	return m.evaluate(attributes, func() error { return m.inner.Admit(ctx, attributes, objects) })
}

type validating struct {
	plugin
	inner admission.ValidationInterface
}

var _ admission.ValidationInterface = (*validating)(nil)

// Validate implements admission.ValidationInterface.
func (v *validating) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	return v.evaluate(attributes, func() error { return v.inner.Validate(ctx, attributes, objects) })
}
