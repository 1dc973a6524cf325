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
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/nsinit/nsinit/pkg/util/cached"
)

// discoveryInterval is how often the kinds of parameters are discovered again, if a policy needs one. It is
// that of the generic API server.
const discoveryInterval = 30 * time.Second

// Registrations has the policies and webhooks of the cluster whose rules match resources that the plugins evaluate. The policies of nsinit
// itself match namespaces and their content, so nsinit-apiserver neither compiles them nor watches their parameters. Each kind of parameter
// has a separate informer, which ends with its last policy. The informers do not decide readiness: while they have not read the
// registrations, Ready returns why, and only requests that the plugins evaluate are refused.
type Registrations struct {
	resources  []schema.GroupVersionResource
	core       kubernetes.Interface
	dynamic    dynamic.Interface
	namespaces informers.SharedInformerFactory
	informers  informers.SharedInformerFactory
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	schemas    *schemas
	plugins    admission.PluginInitializer
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

// New returns the registrations for requests to the given resources, without subresources. They are read when Start is
// called. The config must have its authorizer and its informers.
func New(config *genericapiserver.RecommendedConfig, core kubernetes.Interface, resources []schema.GroupVersionResource) (*Registrations, error) {
	client, err := dynamic.NewForConfig(config.ClientConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the policies of the cluster and their parameters: %w", err)
	}
	r := &Registrations{
		resources:  resources,
		core:       core,
		dynamic:    client,
		namespaces: config.SharedInformerFactory,
		informers:  informers.NewSharedInformerFactory(core, 0),
		mapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery())),
		schemas:    newSchemas(resources),
		watched:    map[string][]*watched{},
	}
	r.plugins = admission.PluginInitializers{
		initializer.NewAPIServerIDInitializer(config.APIServerID),
		initializer.New(localSchemas{core, r.schemas}, client, factory{r.informers, r.namespaces}, config.Authorization.Authorizer, config.FeatureGate,
			config.EffectiveVersion, config.DrainedNotify(), r.mapper),
	}
	return r, nil
}

// Prepare gives a plugin of k8s.io/apiserver its dependencies, and makes Start read what the plugin evaluates.
func (r *Registrations) Prepare(name string, plugin admission.Interface) error {
	switch client := r.core.AdmissionregistrationV1(); name {
	case validatingpolicy.PluginName:
		r.watch(name, "validatingadmissionpolicies", &admissionregistrationv1.ValidatingAdmissionPolicy{}, filtered(r.core, client.ValidatingAdmissionPolicies(), r.matches))
		r.watch(name, "validatingadmissionpolicybindings", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, filtered(r.core, client.ValidatingAdmissionPolicyBindings(), r.matches))
	case mutatingpolicy.PluginName:
		r.watch(name, "mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{},
			filtered(r.core, orBeta[*admissionregistrationv1.MutatingAdmissionPolicyList]{client.MutatingAdmissionPolicies(), r.beta("mutatingadmissionpolicies"),
				&admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicy{}}, r.matches))
		r.watch(name, "mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{},
			filtered(r.core, orBeta[*admissionregistrationv1.MutatingAdmissionPolicyBindingList]{client.MutatingAdmissionPolicyBindings(), r.beta("mutatingadmissionpolicybindings"),
				&admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}}, r.matches))
	case validatingwebhook.PluginName:
		r.watch(name, "validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{}, filtered(r.core, client.ValidatingWebhookConfigurations(), r.matches))
	case mutatingwebhook.PluginName:
		r.watch(name, "mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{}, filtered(r.core, client.MutatingWebhookConfigurations(), r.matches))
	default:
		return fmt.Errorf("unknown plugin %q", name)
	}
	for _, w := range r.watched[name] {
		w.optional = name == mutatingpolicy.PluginName // by default, Kubernetes 1.34 and 1.35 do not serve it
		if err := errors.Join(w.informer.SetTransform(cached.WithoutManagedFields), w.informer.SetWatchErrorHandlerWithContext(w.failed)); err != nil {
			return err
		}
	}
	r.plugins.Initialize(plugin)
	return nil
}

// beta returns a client for a resource in version v1beta1.
func (r *Registrations) beta(resource string) beta {
	return r.dynamic.Resource(admissionregistrationv1beta1.SchemeGroupVersion.WithResource(resource))
}

// watch adds an informer. It must be the first one for the type.
func (r *Registrations) watch(plugin, resource string, object runtime.Object, source cache.ListerWatcher) {
	informer := r.informers.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformerWithOptions(source, object, cache.SharedIndexInformerOptions{})
	})
	r.watched[plugin] = append(r.watched[plugin], &watched{resource: resource, informer: informer})
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
func (r *Registrations) Start(ctx context.Context) {
	r.informers.StartWithContext(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) { r.mapper.Reset() }, discoveryInterval)
}

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

// SetSchemas sets the schemas of the resources by the names of their definitions. MutatingAdmissionPolicies need them.
func (r *Registrations) SetSchemas(definitions map[string]*spec.Schema) { r.schemas.set(definitions) }

// factory is the factory of informers that the plugins see.
type factory struct {
	informers.SharedInformerFactory
	namespaces informers.SharedInformerFactory
}

// Core returns the informers of the server, which watches namespaces already.
func (f factory) Core() coreinformers.Interface { return f.namespaces.Core() }

// ForResource makes each plugin watch parameters with a separate informer. A shared one would not start again after the
// last policy was deleted, see https://github.com/kubernetes/kubernetes/issues/130887.
func (factory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, &meta.NoResourceMatchError{PartialResource: resource}
}
