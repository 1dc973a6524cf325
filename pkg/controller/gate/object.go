/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/installation"
)

// Object is an object of the cluster that brings a part of the gate into force.
type Object struct {
	metav1.TypeMeta
	Name string

	// owner is the delivered object with which the object is removed, such as its policy.
	owner  owner
	get    func(ctx context.Context) error
	apply  func(ctx context.Context, owner metav1.OwnerReference) error
	remove func(ctx context.Context, options metav1.DeleteOptions) error
}

// owner is an object of the manifests.
type owner struct {
	kind, name string
	uid        func(ctx context.Context) (types.UID, error)
}

// String implements fmt.Stringer.
func (o owner) String() string { return o.kind + " " + o.name }

func ownerOf[T metav1.Object](kind, name string, get func(context.Context, string, metav1.GetOptions) (T, error)) owner {
	return owner{kind: kind, name: name, uid: func(ctx context.Context) (types.UID, error) {
		object, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return object.GetUID(), nil
	}}
}

// Objects are the objects that bring the gate into force. One of the first two stamps new namespaces.
type Objects struct{ PolicyStamp, WebhookStamp, Guard Object }

// NewObjects returns the objects of an installation in a namespace.
func NewObjects(core kubernetes.Interface, namespace string) (all Objects, err error) {
	registrations := core.AdmissionregistrationV1()
	if all.PolicyStamp, err = newObject(registrations.MutatingAdmissionPolicyBindings(), namespace, artifacts.Stamp(),
		ownerOf("MutatingAdmissionPolicy", installation.Stamp, registrations.MutatingAdmissionPolicies().Get)); err != nil {
		return Objects{}, err
	}
	if all.WebhookStamp, err = newObject(registrations.MutatingWebhookConfigurations(), namespace, artifacts.StampWebhook(),
		ownerOf("MutatingWebhookConfiguration", installation.OpenedBy, registrations.MutatingWebhookConfigurations().Get)); err != nil {
		return Objects{}, err
	}
	all.Guard, err = newObject(registrations.ValidatingAdmissionPolicyBindings(), namespace, artifacts.GuardCreate(),
		ownerOf("ValidatingAdmissionPolicy", installation.GuardCreate, registrations.ValidatingAdmissionPolicies().Get))
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
func newObject[T, C any](client client[T, C], namespace, manifest string, owner owner) (Object, error) {
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(installation.InNamespace(manifest, namespace)), &content); err != nil {
		return Object{}, err
	}
	object := unstructured.Unstructured{Object: content}
	name := object.GetName()
	return Object{
		TypeMeta: metav1.TypeMeta{APIVersion: object.GetAPIVersion(), Kind: object.GetKind()}, Name: name, owner: owner,
		get: func(ctx context.Context) error {
			_, err := client.Get(ctx, name, metav1.GetOptions{})
			return err
		},
		apply: func(ctx context.Context, owner metav1.OwnerReference) error {
			object := object.DeepCopy()
			object.SetOwnerReferences([]metav1.OwnerReference{owner})
			configuration := new(C)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, configuration, true); err != nil {
				return err
			}
			_, err := client.Apply(ctx, configuration, metav1.ApplyOptions{FieldManager: installation.ControllerManager, Force: true})
			return err
		},
		remove: func(ctx context.Context, options metav1.DeleteOptions) error {
			return client.Delete(ctx, name, options)
		},
	}, nil
}

// String implements fmt.Stringer.
func (o Object) String() string { return o.Kind + " " + o.Name }

// Exists reads the object.
func (o Object) Exists(ctx context.Context) (bool, error) { return exists(o, o.get(ctx)) }

// Installed reads the owner of the object.
func (o Object) Installed(ctx context.Context) (bool, error) {
	_, err := o.owner.uid(ctx)
	return exists(o.owner, err)
}

// Apply creates or updates the object, as a dependent of its owner.
func (o Object) Apply(ctx context.Context) error {
	uid, err := o.owner.uid(ctx)
	if err == nil {
		err = o.apply(ctx, metav1.OwnerReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: o.owner.kind, Name: o.owner.name, UID: uid})
	}
	if err != nil {
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
		return false, &readError{what, err}
	}
	return true, nil
}

// readError says that something could not be read, so it may exist or not.
type readError struct {
	what fmt.Stringer
	err  error
}

func (e *readError) Error() string { return fmt.Sprintf("cannot read %s: %v", e.what, e.err) }

func (e *readError) Unwrap() error { return e.err }
