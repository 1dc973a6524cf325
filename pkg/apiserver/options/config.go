/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	admissioninterface "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission"
	"github.com/nsinit/nsinit/pkg/admission/clusteradmission"
	"github.com/nsinit/nsinit/pkg/apiserver"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/accessiblenamespace"
	"github.com/nsinit/nsinit/pkg/storage"
	"github.com/nsinit/nsinit/pkg/webhook"
	generatedopenapi "github.com/nsinit/nsinit/sdk/generated/openapi"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// Config returns the configuration of a server. The options must be complete and valid,
// and a process must listen on the address of etcd soon.
func (o *Options) Config() (*apiserver.Config, error) {
	config := genericapiserver.NewRecommendedConfig(o.codecs)
	if err := o.Run.ApplyTo(&config.Config); err != nil {
		return nil, err
	}
	// This gate has the features of the Kubernetes libraries.
	config.FeatureGate = o.Registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)

	namer := openapi.NewDefinitionNamer(o.scheme)
	// kubectl nsinit version reads the version here, which every user can.
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title, config.OpenAPIConfig.Info.Version = ComponentName, baseversion.Get().GitVersion
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title, config.OpenAPIV3Config.Info.Version = ComponentName, baseversion.Get().GitVersion

	var extra *apiserver.ExtraConfig
	o.Recommended.ExtraAdmissionInitializers = func(c *genericapiserver.RecommendedConfig) (initializers []admissioninterface.PluginInitializer, err error) {
		extra, initializers, err = o.watch(c)
		return initializers, err
	}
	if err := o.Recommended.ApplyTo(config); err != nil {
		return nil, err
	}
	config.Authorization.Authorizer = authorization.AnyName(config.Authorization.Authorizer)

	etcdReady, err := factory.CreateReadyCheck(o.Recommended.Etcd.StorageConfig, config.DrainedNotify())
	if err != nil {
		return nil, fmt.Errorf("cannot create the readiness check of etcd: %w", err)
	}
	extra.EtcdReady = etcdReady
	extra.Certificate.Clock = o.Clock
	if serving := config.SecureServing; serving != nil && serving.Cert != nil {
		extra.Certificate.Content = serving.Cert.CurrentCertKeyContent
	}
	if err := o.RegisterCollector(extra.Certificate.Metric()); err != nil {
		return nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	return &apiserver.Config{Generic: config, Extra: *extra}, nil
}

// watch returns the configuration with what the server observes while it runs, and the initializers of its admission plugins. Its
// clients have no rate limit: both servers have priority and fairness, and a delayed NamespaceLifecycle keeps a namespace closed.
func (o *Options) watch(c *genericapiserver.RecommendedConfig) (*apiserver.ExtraConfig, []admissioninterface.PluginInitializer, error) {
	coreConfig := rest.CopyConfig(c.ClientConfig)
	coreConfig.QPS = -1
	coreConfig.DisableCompression = true                 // of every event of a watch
	coreConfig.ContentType = runtime.ContentTypeProtobuf // also of access reviews, which are JSON by default
	core, err := kubernetes.NewForConfig(coreConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a client of the core API: %w", err)
	}
	informer := c.SharedInformerFactory.InformerFor(&corev1.Namespace{}, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewNamespaceInformer(core, resync, cache.Indexers{})
	})
	if err := informer.SetTransform(cached.ServedNamespaces); err != nil {
		return nil, nil, err
	}
	namespaces := c.SharedInformerFactory.Core().V1().Namespaces().Lister()
	namespace, name, err := installation.ParseNamespacedName(o.StorageIdentity)
	if err != nil {
		return nil, nil, err
	}
	store, closeStore, err := storage.NewEtcdStore(o.Recommended.Etcd.StorageConfig)
	if err != nil {
		return nil, nil, err
	}
	list, closeList, err := admission.NewList(c.RESTOptionsGetter)
	if err != nil {
		return nil, nil, err
	}
	objects, closeObjects, err := admission.NewObjectsList(c.RESTOptionsGetter)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-c.DrainedNotify()
		closeStore()
		closeList()
		closeObjects()
	}()
	identity := storage.NewIdentity(store, core.CoreV1(), namespace, name, timing.SystemClock())
	reader, err := admission.NewReader(list, identity.Verify, timing.SystemClock(), o.Register)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	space, err := o.newSpaceMonitor(c.DrainedNotify())
	if err != nil {
		return nil, nil, err
	}
	earlyWrites, err := webhook.NewEarlyWrites(namespaces, o.Clock, o.Register)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	registrations, err := clusteradmission.New(c, core)
	if err != nil {
		return nil, nil, err
	}
	o.Recommended.Admission.Decorators = append(admissioninterface.Decorators{registrations}, o.Recommended.Admission.Decorators...)
	accessible, err := newAccessible(core, informer)
	if err != nil {
		return nil, nil, err
	}
	checker := authorization.New(c.Authorization.Authorizer)
	dependencies := admission.Dependencies{
		Checker:              checker,
		Configurations:       reader.Configurations,
		ObjectConfigurations: objects,
		Namespace:            core.CoreV1().Namespaces().Get,
		Cached:               namespaces,
		Space:                space.Problem,
	}
	return &apiserver.ExtraConfig{
		Scheme:         o.scheme,
		Codecs:         o.codecs,
		Clock:          o.Clock,
		Space:          space,
		Identity:       identity,
		Configurations: reader,
		Webhooks: map[string]webhook.Answer{
			webhook.EarlyWrites: earlyWrites,
			webhook.Stamp:       webhook.NewStamp(core.CoreV1(), installation.Namespace(), checker),
		},
		Registrations: registrations,
		Accessible:    accessible,
	}, []admissioninterface.PluginInitializer{registrations, dependencies}, nil
}

// newAccessible returns the index of the namespaces that each user sees. Its authorizer does not cache answers, so that open watches show
// changes soon.
func newAccessible(core kubernetes.Interface, namespaces cache.SharedIndexInformer) (*accessiblenamespace.Index, error) {
	uncached, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: core.AuthorizationV1(), WebhookRetryBackoff: genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("cannot create an authorizer: %w", err)
	}
	return accessiblenamespace.NewIndex(core, namespaces, uncached, clock.RealClock{})
}

// newSpaceMonitor returns the monitor of etcd's space. It closes its client when drained is closed.
func (o *Options) newSpaceMonitor(drained <-chan struct{}) (*storage.Monitor, error) {
	transport, logger := o.Recommended.Etcd.StorageConfig.Transport, zap.NewNop()
	config, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{Endpoints: transport.ServerList, DialTimeout: etcdDialTimeout, Secure: &clientv3.SecureConfig{
		Cert: transport.CertFile, Key: transport.KeyFile, Cacert: transport.TrustedCAFile, InsecureTransport: true, // without any of these files
	}}, logger)
	if err != nil {
		return nil, fmt.Errorf("cannot load the client certificate for etcd: %w", err)
	}
	config.Logger = logger
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client of etcd: %w", err)
	}
	go func() {
		<-drained
		_ = client.Close()
	}()
	monitor := storage.NewMonitor(storage.MonitorOptions{Client: client, Embedded: o.embedded})
	if err := monitor.Register(o.RegisterCollector); err != nil {
		return nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	return monitor, nil
}
