/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package options turns command-line flags into the configuration of nsinit-apiserver.
// It is the only home of defaults.
package options

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	baseversion "k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

const (
	// ComponentName is the component of nsinit in versions.
	ComponentName = "nsinit"

	etcdPrefix     = "/registry/" + v1alpha1.GroupName
	defaultEtcdDir = "/var/lib/nsinit/etcd"
	flagEtcdDir    = "embedded-etcd-dir"

	watchGracePeriod = 5 * time.Second
	etcdDialTimeout  = 5 * time.Second
)

// Options are the options of nsinit-apiserver.
type Options struct {
	Run         *genericoptions.ServerRunOptions
	Recommended *genericoptions.RecommendedOptions
	Logs        *logs.Options
	Registry    basecompatibility.ComponentGlobalsRegistry

	// EmbeddedEtcdDir is where the embedded etcd keeps its data, if it is used.
	EmbeddedEtcdDir string
	// StorageIdentity is NAMESPACE/NAME of the ConfigMap that names the storage in use.
	StorageIdentity string
	// Clock gives the times that the server writes into objects.
	Clock clock.PassiveClock
	// Register and RegisterCollector register the metrics of nsinit.
	Register          func(metrics.Registerable) error
	RegisterCollector func(prometheus.Collector) error

	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	// embedded is true if completed options use the embedded etcd.
	embedded bool
}

// New returns the defaults.
func New() *Options {
	s := scheme.New()
	codecs := serializer.NewCodecFactory(s)
	o := &Options{
		Recommended: genericoptions.NewRecommendedOptions(etcdPrefix, scheme.StorageCodec(s, codecs)),
		Logs:        logs.NewOptions(),
		Registry:    newRegistry(),
		Clock:       timing.SystemClock(),

		Register:          legacyregistry.Register,
		RegisterCollector: legacyregistry.Registerer().Register,

		StorageIdentity: installation.Namespace() + "/nsinit-storage",

		scheme: s,
		codecs: codecs,
	}
	o.Run = genericoptions.NewServerRunOptionsForComponent(ComponentName, o.Registry)
	// Kubernetes itself watches every resource. Without this period, a shutdown would wait for
	// these watches.
	o.Run.ShutdownWatchTerminationGracePeriod = watchGracePeriod
	o.Recommended.Etcd.StorageConfig.EncodeVersioner = scheme.StorageVersion()
	// The etcd check of the generic options is part of liveness: an outage of etcd would
	// restart the server, which does not repair etcd. apiserver.New adds a check to readiness
	// only.
	o.Recommended.Etcd.SkipHealthEndpoints = true
	o.Recommended.Admission = admissionOptions()
	o.Recommended.SecureServing.ServerCert.PairName = installation.APIServer
	o.Recommended.SecureServing.ServerCert.CertDirectory = ""
	return o
}

// newRegistry returns the versions of nsinit and of the Kubernetes libraries, and the feature gates of the libraries.
func newRegistry() basecompatibility.ComponentGlobalsRegistry {
	registry := basecompatibility.NewComponentGlobalsRegistry()
	registry.ComponentGlobalsOrRegister(ComponentName, basecompatibility.NewEffectiveVersionFromString(installation.BinaryVersion, "", ""), nil)
	registry.ComponentGlobalsOrRegister(basecompatibility.DefaultKubeComponent,
		basecompatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, "", ""),
		utilfeature.DefaultMutableFeatureGate)
	return registry
}

// AddFlags adds every flag of the server except those of its logs.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Run.AddUniversalFlags(flags)
	o.Recommended.AddFlags(flags)
	flags.StringVar(&o.EmbeddedEtcdDir, flagEtcdDir, o.EmbeddedEtcdDir,
		"Data directory of the embedded etcd, which listens only on a unix socket in this directory. The command nsinit-apiserver etcd runs the embedded etcd. "+
			"Without --etcd-servers, the default is "+defaultEtcdDir+". This flag cannot be combined with --etcd-servers.")
	flags.StringVar(&o.StorageIdentity, "storage-identity-configmap", o.StorageIdentity,
		"NAMESPACE/NAME of the ConfigMap that contains the identity of the storage. While the storage has another identity or none, nsinit-apiserver refuses requests for NamespaceLifecycles.")
}

// Complete fills in what follows from other options.
func (o *Options) Complete() error {
	etcd := o.Recommended.Etcd
	switch {
	case o.EmbeddedEtcdDir != "" && len(etcd.StorageConfig.Transport.ServerList) > 0:
		return fmt.Errorf("--embedded-etcd-dir=%s and --etcd-servers=%v cannot be combined: keep the first for the embedded etcd, or the second for an etcd cluster",
			o.EmbeddedEtcdDir, etcd.StorageConfig.Transport.ServerList)
	case len(etcd.StorageConfig.Transport.ServerList) == 0:
		o.EmbeddedEtcdDir = cmp.Or(o.EmbeddedEtcdDir, defaultEtcdDir)
		endpoint, err := embeddedetcd.Endpoint(o.EmbeddedEtcdDir)
		if err != nil {
			return fmt.Errorf("--embedded-etcd-dir: %w", err)
		}
		o.embedded = true
		etcd.StorageConfig.Transport.ServerList = []string{endpoint}
	}
	// By default, one kubeconfig serves all three purposes.
	for _, file := range []*string{&o.Recommended.Authentication.RemoteKubeConfigFile, &o.Recommended.Authorization.RemoteKubeConfigFile} {
		*file = cmp.Or(*file, o.Recommended.CoreAPI.CoreAPIKubeconfigPath)
	}
	if err := o.Recommended.SecureServing.MaybeDefaultWithSelfSignedCerts(installation.APIServer, nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("cannot create a self-signed certificate: %w", err)
	}
	return o.Run.Complete()
}

// Validate returns every error in completed options.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.Run.Validate()...)
	errs = append(errs, o.Recommended.Validate()...)
	if _, _, err := installation.ParseNamespacedName(o.StorageIdentity); err != nil {
		errs = append(errs, fmt.Errorf("--storage-identity-configmap: %w", err))
	}
	etcd := o.Recommended.Etcd
	if etcd.EtcdServersOverrides != nil {
		errs = append(errs, errors.New("--etcd-servers-overrides is not supported: all resources are stored in one etcd"))
	}
	if o.embedded && etcd.StorageConfig.Transport.CertFile != "" {
		errs = append(errs, fmt.Errorf("--etcd-certfile=%s takes effect with --etcd-servers only", etcd.StorageConfig.Transport.CertFile))
	}
	return utilerrors.NewAggregate(errs)
}
