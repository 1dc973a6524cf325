/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
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
	server := NewServerClock(clock.RealClock{}, 0)
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

// Exemptions reads the list of exemptions.
func (c *Clients) Exemptions(ctx context.Context) (*installation.ExemptionList, error) {
	configMap, err := c.ExemptionsConfigMap(ctx)
	if err != nil {
		return nil, err
	}
	return installation.ParseExemptions(configMap), nil
}

// ExemptionsConfigMap reads the ConfigMap with the list of exemptions.
func (c *Clients) ExemptionsConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	namespace := c.InstalledIn(ctx)
	configMap, err := c.Core.CoreV1().ConfigMaps(namespace).Get(ctx, installation.Exemptions, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read the list of exemptions, ConfigMap %s/%s: %w", namespace, installation.Exemptions, err)
	}
	return configMap, nil
}

// ErrNotRegistered says that kube-apiserver does not know the API of nsinit.
var ErrNotRegistered = errors.New("the API of nsinit is not registered: nsinit is not installed, or does not work; run kubectl nsinit check")

// ServerVersion reads the version of nsinit-apiserver from its OpenAPI document. kube-apiserver forwards requests for this
// document, but not for /version.
func (c *Clients) ServerVersion(ctx context.Context) (string, error) {
	result := c.REST.Get().AbsPath("/openapi/v3/apis/"+v1alpha1.SchemeGroupVersion.String()).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := result.Error(); apierrors.IsNotFound(err) {
		return "", ErrNotRegistered
	} else if err != nil {
		return "", err
	}
	data, err := result.Raw()
	if err != nil {
		return "", err
	}
	var document struct{ Info struct{ Version string } }
	if err := json.Unmarshal(data, &document); err != nil {
		return "", err
	}
	return document.Info.Version, nil
}

// Self returns the user who runs the command.
func Self(ctx context.Context, core kubernetes.Interface) (authenticationv1.UserInfo, error) {
	review, err := core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("cannot determine your user name: %w", err)
	}
	return review.Status.UserInfo, nil
}
