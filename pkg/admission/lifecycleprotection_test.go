/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestImmortal: the lifecycle of an immortal namespace cannot be deleted, even if the namespace does
// not exist, unless it has neither a plan nor participants.
func TestImmortal(t *testing.T) {
	p := NewLifecycleProtection()
	p.Namespace = func(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	tests := map[string]struct {
		name      string
		lifecycle runtime.Object
		forbidden bool
	}{
		"of another":    {"ns", &nsinit.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Plan: []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}}}}}, false},
		"not known":     {"default", nil, true},
		"nothing":       {"default", &nsinit.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Finalizers: []v1alpha1.FinalizerName{v1alpha1.FinalizerKubernetes}}}, false},
		"released":      {"default", &nsinit.NamespaceLifecycle{}, false},
		"a plan":        {"kube-system", &nsinit.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Plan: []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}}}}}, true},
		"a participant": {"default", &nsinit.NamespaceLifecycle{Spec: v1alpha1.NamespaceLifecycleSpec{Finalizers: []v1alpha1.FinalizerName{"a.example.com"}}}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			attributes := admission.NewAttributesRecord(nil, test.lifecycle, schema.GroupVersionKind{}, "", test.name,
				nsinit.Resource("namespacelifecycles").WithVersion("v1alpha1"), "", admission.Delete, nil, false, nil)
			if err := p.Validate(t.Context(), attributes, nil); apierrors.IsForbidden(err) != test.forbidden || !test.forbidden && err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}
