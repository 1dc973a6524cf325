/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	admissionregistrationinformers "k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Registrations has the policies and webhooks of the cluster. Those that match no request to the Resources have no content, as the
// policies of nsinit itself, so nsinit-apiserver neither compiles them nor watches their parameters. Each kind of parameter has a
// separate informer, which ends with its last policy. The informers do not decide readiness: while they have not read the registrations,
// Ready returns why, and only requests that the plugins evaluate are refused.
type Registrations struct {
	core       kubernetes.Interface
	namespaces informers.SharedInformerFactory
	informers  informers.SharedInformerFactory
	schemas    schemas
	watched    map[string][]*watched
}

// watched is one kind of registrations.
type watched struct {
	resource string
	informer cache.SharedIndexInformer
	// optional is true if some supported version of Kubernetes does not serve the kind.
	optional bool
	// failure is the last error of a list or a watch.
	failure atomic.Pointer[error]
}

// New returns the registrations, which are read when Start is called. It makes the informers of the config return them.
func New(config *genericapiserver.RecommendedConfig, core kubernetes.Interface) (*Registrations, error) {
	beta, err := newBeta(config.ClientConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the policies of the cluster: %w", err)
	}
	r, err := newRegistrations(core, beta, config.SharedInformerFactory)
	config.SharedInformerFactory = factory{config.SharedInformerFactory, r.informers}
	return r, err
}

func newRegistrations(core kubernetes.Interface, beta rest.Interface, namespaces informers.SharedInformerFactory) (*Registrations, error) {
	r := &Registrations{core: core, namespaces: namespaces, informers: informers.NewSharedInformerFactory(core, 0)}
	// By default, Kubernetes 1.34 and 1.35 do not serve the kind.
	mutating := func(resource string, object runtime.Object) *watched {
		informer := r.informers.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformerWithOptions(orBeta(core.AdmissionregistrationV1().RESTClient(), beta, resource), object, cache.SharedIndexInformerOptions{})
		})
		return &watched{resource: resource, informer: informer, optional: true}
	}
	v1 := r.informers.Admissionregistration().V1()
	r.watched = map[string][]*watched{
		validatingpolicy.PluginName: {
			{resource: "validatingadmissionpolicies", informer: v1.ValidatingAdmissionPolicies().Informer()},
			{resource: "validatingadmissionpolicybindings", informer: v1.ValidatingAdmissionPolicyBindings().Informer()},
		},
		mutatingpolicy.PluginName: {
			mutating("mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{}),
			mutating("mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{}),
		},
		validatingwebhook.PluginName: {{resource: "validatingwebhookconfigurations", informer: v1.ValidatingWebhookConfigurations().Informer()}},
		mutatingwebhook.PluginName:   {{resource: "mutatingwebhookconfigurations", informer: v1.MutatingWebhookConfigurations().Informer()}},
	}
	for _, kinds := range r.watched {
		for _, w := range kinds {
			if err := errors.Join(w.informer.SetTransform(reduced), w.informer.SetWatchErrorHandlerWithContext(w.failed)); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// Initialize implements admission.PluginInitializer.
func (r *Registrations) Initialize(plugin admission.Interface) {
	if plugin, ok := plugin.(*mutatingpolicy.Plugin); ok {
		plugin.SetExternalKubeClientSet(localSchemas{r.core, &r.schemas})
	}
}

// failed remembers why a list or a watch failed.
func (w *watched) failed(ctx context.Context, reflector *cache.Reflector, err error) {
	w.failure.Store(&err)
	if w.unserved() {
		klog.FromContext(ctx).V(2).Info("The cluster does not serve a kind of admission policies", "resource", w.resource)
		return
	}
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// unserved says whether the cluster does not have the kind. The informer tries again, at most every 30 seconds.
func (w *watched) unserved() bool {
	failure := w.failure.Load()
	return w.optional && failure != nil && apierrors.IsNotFound(*failure) && !w.informer.HasSynced()
}

// Start reads the registrations until the context ends.
func (r *Registrations) Start(ctx context.Context) { r.informers.StartWithContext(ctx) }

// Ready returns why a plugin cannot decide yet, or nil. Served is false if the cluster does not serve what the plugin
// evaluates.
func (r *Registrations) Ready(plugin string) (served bool, err error) {
	for _, w := range r.watched[plugin] {
		failure := w.failure.Load()
		switch {
		case w.informer.HasSynced():
		case w.unserved():
			return false, nil
		case failure != nil:
			return true, fmt.Errorf("cannot read %s.%s: %w", w.resource, admissionregistrationv1.GroupName, *failure)
		default:
			return true, fmt.Errorf("%s.%s are not read yet", w.resource, admissionregistrationv1.GroupName)
		}
	}
	if !r.namespaces.Core().V1().Namespaces().Informer().HasSynced() {
		return true, errors.New("namespaces are not read yet")
	}
	return true, nil
}

// SetSchemas sets the schemas of the resources by the names of their definitions, before the server runs. MutatingAdmissionPolicies
// need them.
func (r *Registrations) SetSchemas(definitions map[string]*spec.Schema) {
	r.schemas.definitions = definitions
}

// factory is the factory of informers that the plugins see. Start and WaitForCacheSync do not include the registrations.
type factory struct {
	informers.SharedInformerFactory
	registrations informers.SharedInformerFactory
}

// Admissionregistration returns the informers of the registrations.
func (f factory) Admissionregistration() admissionregistrationinformers.Interface {
	return f.registrations.Admissionregistration()
}

// ForResource makes each plugin watch parameters with a separate informer. A shared one would not start again after the
// last policy was deleted, see https://github.com/kubernetes/kubernetes/issues/130887.
func (factory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, &meta.NoResourceMatchError{PartialResource: resource}
}
