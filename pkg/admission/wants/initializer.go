/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package wants hands admission plugins what they ask for by implementing a WantsX
// interface.
package wants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/admission/plan"
	"github.com/nsinit/nsinit/pkg/authorization"
)

// WantsConfigurationSource is implemented by plugins that need the configurations.
type WantsConfigurationSource interface {
	SetConfigurationSource(plan.Source)
	admission.InitializationValidator
}

// NamespaceReader reads a namespace of the core API live, without a cache.
type NamespaceReader func(ctx context.Context, name string) (*corev1.Namespace, error)

// NewNamespaceReader returns a NamespaceReader on a client of the core API.
func NewNamespaceReader(client kubernetes.Interface) NamespaceReader {
	return func(ctx context.Context, name string) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
}

// WantsNamespaceReader is implemented by plugins that read namespaces live.
type WantsNamespaceReader interface {
	SetNamespaceReader(NamespaceReader)
	admission.InitializationValidator
}

// WantsAuthorizationChecker is implemented by plugins that ask who holds nsinit's own verbs.
type WantsAuthorizationChecker interface {
	SetAuthorizationChecker(*authorization.Checker)
	admission.InitializationValidator
}

// StorageSpace returns why nothing can be created because the storage is full, or nil.
type StorageSpace func() error

// WantsStorageSpace is implemented by plugins that ask whether the storage is full.
type WantsStorageSpace interface {
	SetStorageSpace(StorageSpace)
	admission.InitializationValidator
}

type pluginInitializer struct {
	source     plan.Source
	checker    *authorization.Checker
	namespaces NamespaceReader
	space      StorageSpace
}

// New returns the initializer of nsinit's plugins.
func New(source plan.Source, checker *authorization.Checker, namespaces NamespaceReader, space StorageSpace) admission.PluginInitializer {
	return &pluginInitializer{source: source, checker: checker, namespaces: namespaces, space: space}
}

// Initialize implements admission.PluginInitializer.
func (i *pluginInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(WantsConfigurationSource); ok {
		wants.SetConfigurationSource(i.source)
	}
	if wants, ok := plugin.(WantsAuthorizationChecker); ok {
		wants.SetAuthorizationChecker(i.checker)
	}
	if wants, ok := plugin.(WantsNamespaceReader); ok {
		wants.SetNamespaceReader(i.namespaces)
	}
	if wants, ok := plugin.(WantsStorageSpace); ok {
		wants.SetStorageSpace(i.space)
	}
}
