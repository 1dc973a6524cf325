/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	stampwebhook "github.com/nsinit/nsinit/artifacts/deploy/components/stamp-webhook"
	"github.com/nsinit/nsinit/artifacts/policies"
	"github.com/nsinit/nsinit/pkg/installation"
)

// Object is an object of the cluster that brings a part of the gate into force.
type Object struct {
	metav1.TypeMeta
	Name string

	get    func(ctx context.Context) error
	apply  func(ctx context.Context) error
	remove func(ctx context.Context, options metav1.DeleteOptions) error
}

// Objects are the objects that bring the gate into force. One of the first two stamps new namespaces.
type Objects struct{ PolicyStamp, WebhookStamp, Guard Object }

// NewObjects returns the objects of an installation in a namespace.
func NewObjects(core kubernetes.Interface, namespace string) (all Objects, err error) {
	stamp, stampErr := policies.Stamp()
	guard, guardErr := policies.GuardCreate()
	if err := errors.Join(stampErr, guardErr); err != nil {
		return Objects{}, err
	}
	registrations := core.AdmissionregistrationV1()
	if all.PolicyStamp, err = newObject(registrations.MutatingAdmissionPolicyBindings(), namespace, stamp); err != nil {
		return Objects{}, err
	}
	if all.WebhookStamp, err = newObject(registrations.MutatingWebhookConfigurations(), namespace, stampwebhook.Stamp()); err != nil {
		return Objects{}, err
	}
	all.Guard, err = newObject(registrations.ValidatingAdmissionPolicyBindings(), namespace, guard)
	return all, err
}

// InOrder returns the objects in the order in which they are removed: the guard is first, because it refuses what is not
// stamped.
func (o Objects) InOrder() []Object { return []Object{o.Guard, o.PolicyStamp, o.WebhookStamp} }

// client is a typed client of a kind T with the apply configuration C.
type client[T, C any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*T, error)
	Apply(ctx context.Context, configuration *C, options metav1.ApplyOptions) (*T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// newObject returns the object of a manifest, for an installation in a namespace.
func newObject[T, C any](client client[T, C], namespace, manifest string) (Object, error) {
	manifest = installation.InNamespace(manifest, namespace)
	var meta metav1.PartialObjectMetadata
	configuration := new(C)
	if err := yaml.Unmarshal([]byte(manifest), &meta); err != nil {
		return Object{}, err
	}
	if err := yaml.UnmarshalStrict([]byte(manifest), configuration); err != nil {
		return Object{}, err
	}
	return Object{
		TypeMeta: meta.TypeMeta, Name: meta.Name,
		get: func(ctx context.Context) error {
			_, err := client.Get(ctx, meta.Name, metav1.GetOptions{})
			return err
		},
		apply: func(ctx context.Context) error {
			_, err := client.Apply(ctx, configuration, metav1.ApplyOptions{FieldManager: installation.ControllerManager, Force: true})
			return err
		},
		remove: func(ctx context.Context, options metav1.DeleteOptions) error {
			return client.Delete(ctx, meta.Name, options)
		},
	}, nil
}

// String implements fmt.Stringer.
func (o Object) String() string { return o.Kind + " " + o.Name }

// Exists reads the object.
func (o Object) Exists(ctx context.Context) (bool, error) { return exists(o, o.get(ctx)) }

// Apply creates or updates the object.
func (o Object) Apply(ctx context.Context) error {
	if err := o.apply(ctx); err != nil {
		return fmt.Errorf("cannot apply %s: %w", o, err)
	}
	return nil
}

// Remove deletes the object, and reports whether it existed.
func (o Object) Remove(ctx context.Context, options metav1.DeleteOptions) (bool, error) {
	err := o.remove(ctx, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("cannot delete %s: %w", o, err)
	}
	return err == nil, nil
}

// exists interprets the error of reading something. A kind that the server does not have is not found, too.
func exists(what fmt.Stringer, err error) (bool, error) {
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return true, nil
}
