/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/initializer"
)

// Populator applies manifests to namespaces.
type Populator struct {
	// Manifests are what is applied.
	Manifests *Manifests
	// Client applies it, with the identity of the initializer.
	Client dynamic.Interface
	// Mapper tells the resource of a kind.
	Mapper meta.ResettableRESTMapper
	// FieldManager owns the fields that are applied.
	FieldManager string
}

// Initialize applies every manifest to a namespace, in order. It is idempotent. It is an
// initializer.Func.
func (p *Populator) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	if namespace.Annotations[v1alpha1.AnnotationCreatedBy] == "" {
		return fmt.Errorf("the namespace has no annotation %s, which nsinit's policy sets when a namespace is created: its creator is unknown", v1alpha1.AnnotationCreatedBy)
	}
	objects, err := p.Manifests.Render(namespace)
	if err != nil {
		return err
	}
	for i, object := range objects {
		what := fmt.Sprintf("%s %q (%d of %d)", object.GetKind(), object.GetName(), i+1, len(objects))
		if err := p.apply(ctx, object); err != nil {
			return explain(what, err)
		}
		klog.FromContext(ctx).V(2).Info("Applied", "object", what)
	}
	return nil
}

func (p *Populator) apply(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := p.mapping(object)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return initializer.Fail(fmt.Errorf("%s is not namespaced: remove it from the manifests", mapping.Resource.GroupResource()))
	}
	_, err = p.Client.Resource(mapping.Resource).Namespace(object.GetNamespace()).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: p.FieldManager, Force: true})
	return err
}

// mapping asks for the resource of a kind, and once more after a reset: the kind may have
// been added to the cluster since.
func (p *Populator) mapping(object *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := object.GroupVersionKind()
	mapping, err := p.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		p.Mapper.Reset()
		mapping, err = p.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}

// explain says which manifest could not be applied, and what helps.
func explain(what string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot apply %s: grant the service account of policy-population what is missing: %w", what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("cannot apply %s: the cluster does not know the kind, install it or remove the manifest: %w", what, err)
	}
	return fmt.Errorf("cannot apply %s: %w", what, err)
}
