/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package clusteradmission holds the admission plugins of k8s.io/apiserver that evaluate the policies and webhooks of the
// cluster: MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy and ValidatingAdmissionWebhook.
// kube-apiserver proxies requests for nsinit's kinds before it evaluates them.
//
// The plugins evaluate writes of NamespaceInitializerConfigurations, InitializerConfigurations and NamespacePopulations, which
// users write. They never evaluate another request, so no policy and no webhook can keep a namespace closed or prevent its deletion:
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
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// Order returns the names of the plugins, in the order of kube-apiserver.
func Order() []string {
	return []string{mutatingpolicy.PluginName, mutatingwebhook.PluginName, validatingpolicy.PluginName, validatingwebhook.PluginName}
}

// Resources returns the resources that the plugins evaluate, without their subresources.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		v1alpha1.SchemeGroupVersion.WithResource("namespaceinitializerconfigurations"),
		v1alpha1.SchemeGroupVersion.WithResource("initializerconfigurations"),
		v1alpha1.SchemeGroupVersion.WithResource("namespacepopulations"),
	}
}

// Register registers the plugins.
func Register(plugins *admission.Plugins) {
	mutatingpolicy.Register(plugins)
	mutatingwebhook.Register(plugins)
	validatingpolicy.Register(plugins)
	validatingwebhook.Register(plugins)
}

// Decorate implements admission.Decorator: each of the plugins evaluates only what it has to.
func (r *Registrations) Decorate(plugin admission.Interface, name string) admission.Interface {
	if r.watched[name] == nil {
		return plugin
	}
	if plugin, ok := plugin.(admission.MutationInterface); ok {
		return mutating{plugin, limit{name, r}}
	}
	return validating{plugin.(admission.ValidationInterface), limit{name, r}}
}

// limit decides which requests a plugin evaluates.
type limit struct {
	name          string
	registrations *Registrations
}

// evaluate calls the inner plugin if it evaluates a request. If the registrations are not read yet, the request
// is refused, and clients of Kubernetes repeat it.
func (l limit) evaluate(attributes admission.Attributes, inner func() error) error {
	if attributes.GetSubresource() != "" || !slices.Contains(Resources(), attributes.GetResource()) {
		return nil
	}
	served, err := l.registrations.Ready(l.name)
	if err != nil {
		return utilapierrors.NewUnavailable(fmt.Errorf("%s %q cannot be written: nsinit-apiserver cannot evaluate the plugin %s: %w; "+
			"if this lasts, check that the ClusterRole nsinit:apiserver is that of this version",
			attributes.GetResource().Resource, attributes.GetName(), l.name, err))
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
	admission.MutationInterface
	limit
}

// Admit implements admission.MutationInterface.
func (m mutating) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	return m.evaluate(attributes, func() error { return m.MutationInterface.Admit(ctx, attributes, objects) })
}

type validating struct {
	admission.ValidationInterface
	limit
}

// Validate implements admission.ValidationInterface.
func (v validating) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	return v.evaluate(attributes, func() error { return v.ValidationInterface.Validate(ctx, attributes, objects) })
}
