/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Dependencies are what the plugins need. They are the initializer of the plugins.
type Dependencies struct {
	// Checker checks nsinit's own verbs.
	Checker *authorization.Checker
	// Configurations returns all configurations at one revision that is not older than the beginning of the call, in no particular
	// order. Callers must not change the result, which they share. On an error, no lifecycle may be created, because its plan
	// could lack initializers.
	Configurations func(ctx context.Context) ([]v1alpha1.NamespaceInitializerConfiguration, error)
	// ObjectConfigurations returns the configurations of pods and Jobs in the storage.
	ObjectConfigurations func(ctx context.Context) ([]nsinit.InitializerConfiguration, error)
	// Namespace reads a namespace from kube-apiserver, without a cache.
	Namespace func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error)
	// Cached are the namespaces that a watch shows. Nil: every namespace is read live.
	Cached corelisters.NamespaceLister
	// Space returns why the storage is too full to create objects, or nil.
	Space func() error
}

// Initialize implements admission.PluginInitializer.
func (d Dependencies) Initialize(plugin admission.Interface) {
	if plugin, ok := plugin.(interface{ setDependencies(Dependencies) }); ok {
		plugin.setDependencies(d)
	}
}

// dependent is the part that all plugins have.
type dependent struct {
	*admission.Handler
	Dependencies
	complete bool
}

func (d *dependent) setDependencies(dependencies Dependencies) {
	d.Dependencies, d.complete = dependencies, true
}

// ValidateInitialization implements admission.InitializationValidator.
func (d *dependent) ValidateInitialization() error {
	if !d.complete {
		return errors.New("missing the dependencies of nsinit's plugins")
	}
	return nil
}

// Order returns the names of the plugins. The first two are cheap, and change nothing.
func Order() []string {
	return []string{StorageSpaceName, LifecycleProtectionName, NamespaceInitializersName}
}

// Register registers the plugins.
func Register(plugins *admission.Plugins) {
	plugins.Register(StorageSpaceName, func(io.Reader) (admission.Interface, error) { return NewStorageSpace(), nil })
	plugins.Register(LifecycleProtectionName, func(io.Reader) (admission.Interface, error) { return NewLifecycleProtection(), nil })
	plugins.Register(NamespaceInitializersName, func(io.Reader) (admission.Interface, error) { return NewNamespaceInitializers(), nil })
}
