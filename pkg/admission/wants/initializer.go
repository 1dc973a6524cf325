/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package wants injects dependencies into admission plugins that implement a WantsX interface.
package wants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/admission/plan"
)

// WantsConfigurationSource is implemented by plugins that need the configurations.
type WantsConfigurationSource interface {
	SetConfigurationSource(plan.Source)
	admission.InitializationValidator
}

// NamespaceReader reads a namespace from kube-apiserver, without a cache.
type NamespaceReader func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error)

// WantsNamespaceReader is implemented by plugins that read namespaces live.
type WantsNamespaceReader interface {
	SetNamespaceReader(NamespaceReader)
	admission.InitializationValidator
}

// StorageSpace returns why the storage is too full to create objects, or nil.
type StorageSpace func() error

// WantsStorageSpace is implemented by plugins that check whether the storage is full.
type WantsStorageSpace interface {
	SetStorageSpace(StorageSpace)
	admission.InitializationValidator
}

// ClusterAdmission knows the admission policies and webhooks of the cluster.
type ClusterAdmission interface {
	// Prepare gives a plugin of k8s.io/apiserver its dependencies.
	Prepare(name string, plugin admission.Interface) error
	// Ready returns why a plugin cannot decide yet, or nil. Served is false if the cluster does not serve what it evaluates.
	Ready(plugin string) (served bool, err error)
}

// WantsClusterAdmission is implemented by plugins that evaluate the policies and webhooks of the cluster.
type WantsClusterAdmission interface {
	SetClusterAdmission(ClusterAdmission)
	admission.InitializationValidator
}

// Initializer is the initializer of nsinit's plugins.
type Initializer struct {
	Configurations plan.Source
	Namespaces     NamespaceReader
	Space          StorageSpace
	Cluster        ClusterAdmission
}

// Initialize implements admission.PluginInitializer.
func (i Initializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(WantsConfigurationSource); ok {
		wants.SetConfigurationSource(i.Configurations)
	}
	if wants, ok := plugin.(WantsNamespaceReader); ok {
		wants.SetNamespaceReader(i.Namespaces)
	}
	if wants, ok := plugin.(WantsStorageSpace); ok {
		wants.SetStorageSpace(i.Space)
	}
	if wants, ok := plugin.(WantsClusterAdmission); ok {
		wants.SetClusterAdmission(i.Cluster)
	}
}
