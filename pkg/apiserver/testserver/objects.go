/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package testserver

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Namespace returns a core Namespace whose gate is closed, or open.
func Namespace(name string, uid types.UID, initializing bool) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	if initializing {
		namespace.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
	}
	return namespace
}

// Configuration returns a configuration that registers initializers by their names.
func Configuration(name string, initializers ...string) *v1alpha1.NamespaceInitializerConfiguration {
	configuration := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, initializer := range initializers {
		configuration.Initializers = append(configuration.Initializers, v1alpha1.RegisteredInitializer{Name: initializer})
	}
	return configuration
}

// Lifecycle returns the NamespaceLifecycle of a namespace as the lifecycle controller sends it.
func Lifecycle(name string, uid types.UID) *v1alpha1.NamespaceLifecycle {
	return &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NamespaceLifecycleSpec{NamespaceUID: uid},
	}
}

// MustConfigure stores a configuration.
func (s *Server) MustConfigure(t testing.TB, configuration *v1alpha1.NamespaceInitializerConfiguration) *v1alpha1.NamespaceInitializerConfiguration {
	t.Helper()
	stored, err := s.Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations().Create(context.Background(), configuration, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// MustLifecycle creates an initializing namespace in the core API, and its NamespaceLifecycle.
func (s *Server) MustLifecycle(t testing.TB, name string) *v1alpha1.NamespaceLifecycle {
	t.Helper()
	uid := types.UID("uid-of-" + name)
	s.Core.SetNamespace(Namespace(name, uid, true))
	lifecycles := s.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	stored, err := lifecycles.Create(context.Background(), Lifecycle(name, uid), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // etcd answered too late, so the client sent the request again
		stored, err = lifecycles.Get(context.Background(), name, metav1.GetOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return stored
}
