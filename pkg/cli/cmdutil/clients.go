/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/installation"
)

const (
	// qps and burst bound the requests, as in kubectl.
	qps   = 50
	burst = 300
)

// Clients are the clients of one cluster, and the clock that waits are measured by.
type Clients struct {
	diagnosis.Clients
	// REST reads untyped responses of nsinit-apiserver, such as tables.
	REST    rest.Interface
	Dynamic dynamic.Interface
	Mapper  meta.ResettableRESTMapper
	Clock   clock.Clock
	// ServerClock is the clock of kube-apiserver. The times in objects are compared with it, because that of this machine can be wrong.
	ServerClock clock.PassiveClock
}

// InstalledIn returns the namespace into which nsinit is installed: that of a binding, or else of the APIService, which does not exist
// before nsinit works.
func (c *Clients) InstalledIn(ctx context.Context) string {
	binding, err := c.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, installation.Follows, metav1.GetOptions{})
	if err == nil && binding.Spec.ParamRef != nil {
		return binding.Spec.ParamRef.Namespace
	}
	service, err := c.APIs.ApiregistrationV1().APIServices().Get(ctx, installation.APIService, metav1.GetOptions{})
	if err != nil {
		return installation.DefaultNamespace // what needs the namespace reports that it finds nothing there
	}
	return diagnosis.NamespaceOf(service)
}

// Factory returns the clients of the cluster that the flags name. The options change their configuration.
type Factory func(options ...func(*rest.Config)) (*Clients, error)

// NewFactory adds kubectl's connection flags to flags, except --namespace and --cache-dir, and returns the Factory that
// reads them. Clients write the API server's warnings to warnings.
func NewFactory(flags *pflag.FlagSet, warnings io.Writer) Factory {
	connection := genericclioptions.NewConfigFlags(true)
	connection.Namespace, connection.CacheDir = nil, nil
	connection.AddFlags(flags)
	return func(options ...func(*rest.Config)) (*Clients, error) {
		config, err := connection.ToRESTConfig()
		if err != nil {
			return nil, err
		}
		config = rest.CopyConfig(config)
		config.QPS, config.Burst = qps, burst
		config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
		for _, option := range options {
			option(config)
		}
		return newClients(config)
	}
}

// WithoutWarnings makes the clients of a Factory ignore the API server's warnings.
func WithoutWarnings(config *rest.Config) { config.WarningHandler = rest.NoWarnings{} }

func newClients(config *rest.Config) (*Clients, error) {
	server := &serverClock{local: clock.RealClock{}}
	config.Wrap(server.wrap)
	core, coreErr := kubernetes.NewForConfig(config)
	nsinit, nsinitErr := versioned.NewForConfig(config)
	apis, apisErr := aggregator.NewForConfig(config)
	objects, objectsErr := dynamic.NewForConfig(config)
	metadata, metadataErr := metadata.NewForConfig(config)
	if err := errors.Join(coreErr, nsinitErr, apisErr, objectsErr, metadataErr); err != nil {
		return nil, err
	}
	return &Clients{
		Clients: diagnosis.NewClients(core, nsinit, apis, metadata),
		REST:    nsinit.NsinitV1alpha1().RESTClient(), Dynamic: objects,
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery())), Clock: clock.RealClock{}, ServerClock: server,
	}, nil
}
