/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// Applier applies and deletes objects.
type Applier struct {
	Client dynamic.Interface
	Mapper meta.ResettableRESTMapper
	// Discovery says whether a kind that Mapper does not know exists. Nil: it does not.
	Discovery discovery.ServerResourcesInterface
	// FieldManager owns the applied fields.
	FieldManager string
	// ClusterScoped are the cluster-scoped resources that may be applied.
	ClusterScoped map[schema.GroupResource]struct{}
	// DryRun stores nothing.
	DryRun bool
	// Pace bounds how often Await returns. Nil: there is no bound.
	Pace flowcontrol.RateLimiter
	// Reviews reviews the permissions of Client. Only Check and Readiness use it.
	Reviews authorizationclient.SelfSubjectAccessReviewInterface
	*Compiler
}

// Apply applies the content of an object for a namespace, and returns what is stored.
func (a *Applier) Apply(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured) (_ *unstructured.Unstructured, err error) {
	defer explain(&err, "apply", content.GetKind(), content.GetName())
	client, err := a.applicable(content.GroupVersionKind(), namespace.Name)
	if err != nil {
		return nil, err
	}
	var live *unstructured.Unstructured
	if !client.namespaced {
		if live, err = client.find(ctx, content.GetName()); err != nil {
			return nil, err
		}
	}
	content = content.DeepCopy() // which is the caller's
	if err := client.place(namespace, content, live); err != nil {
		return nil, err
	}
	return client.Apply(ctx, content.GetName(), content, a.options(true))
}

// Repair applies a content like Apply. Some fields cannot be changed: if kube-apiserver rejects the content as invalid, Repair
// deletes the stored object and applies the content again, provided that a user created the object in the place of the one that
// was applied, or made it immutable. It keeps the object if it is cluster-scoped, or if the content is invalid as a new object,
// too. applied is the UID of the object that was applied, or empty: Repair never deletes an object in a place where nothing was
// applied.
func (a *Applier) Repair(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, applied types.UID) (*unstructured.Unstructured, error) {
	stored, rejected := a.Apply(ctx, namespace, content)
	if !apierrors.IsInvalid(rejected) || applied == "" {
		return stored, rejected
	}
	client, err := a.resource(content.GroupVersionKind(), namespace.Name)
	if err != nil || !client.namespaced {
		return nil, rejected
	}
	failed := func(err error) (*unstructured.Unstructured, error) {
		explain(&err, "replace", content.GetKind(), content.GetName())
		return nil, fmt.Errorf("%w; it has to be replaced: %w", err, rejected)
	}
	live, err := client.Get(ctx, content.GetName(), metav1.GetOptions{})
	if err != nil {
		return failed(err)
	}
	uid := live.GetUID()
	if immutable, _, _ := unstructured.NestedBool(live.Object, "immutable"); uid == applied && !immutable {
		return nil, rejected
	}
	if live.GetDeletionTimestamp() != nil {
		return failed(errors.New("it is being deleted; if it stays, check its finalizers"))
	}
	// kube-apiserver reports that the name is taken after it has accepted the rest of the object.
	placed := content.DeepCopy() // content is the caller's
	placed.SetNamespace(namespace.Name)
	if _, err := client.Create(ctx, placed, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil && !apierrors.IsAlreadyExists(err) {
		return failed(err)
	}
	if a.DryRun {
		return placed, nil
	}
	if err := client.remove(ctx, content.GetName(), uid); err != nil {
		return failed(err)
	}
	return a.Apply(ctx, namespace, content)
}

// remove deletes an object, and no other of its name.
func (r *resource) remove(ctx context.Context, name string, uid types.UID) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: new(metav1.DeletePropagationBackground)}
	return utilapierrors.IgnoreAbsent(r.Delete(ctx, name, options))
}

// options returns the options to apply an object. With force, fields of other clients are taken over.
func (a *Applier) options(force bool) metav1.ApplyOptions {
	options := metav1.ApplyOptions{FieldManager: a.FieldManager, Force: force}
	if a.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options
}

// find returns an object, or nil if it does not exist.
func (r *resource) find(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	live, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// place puts a content into a namespace. The namespace becomes the owner of a cluster-scoped object, so that the garbage
// collector deletes the object after the namespace. live is the stored object, or nil: it must have the same owner.
func (r *resource) place(namespace *corev1.Namespace, content, live *unstructured.Unstructured) error {
	if r.namespaced {
		content.SetNamespace(namespace.Name)
		return nil
	}
	content.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}})
	if live == nil {
		return nil
	}
	for _, owner := range live.GetOwnerReferences() {
		if owner.UID == namespace.UID {
			content.SetResourceVersion(live.GetResourceVersion())
			return nil
		}
		if owner.Kind == "Namespace" && owner.Name == namespace.Name {
			return fmt.Errorf("the object of the former namespace %q has not been garbage collected yet", namespace.Name)
		}
	}
	return errors.New("it exists and does not belong to this namespace: use the name of the namespace in its name")
}

// allowed returns an error if a cluster-scoped resource may not be applied.
func (a *Applier) allowed(resource schema.GroupResource) error {
	if _, allowed := a.ClusterScoped[resource]; allowed {
		return nil
	}
	return fmt.Errorf("%s are cluster-scoped, and this initializer may not apply them: remove the manifest, or ask an administrator to add %s to --cluster-scoped-resources",
		resource, resource)
}

// Prune deletes an object that a population does not have any more. It does not delete an object that another client
// created in its place.
func (a *Applier) Prune(ctx context.Context, namespace *corev1.Namespace, object v1alpha1.PopulatedObject) (err error) {
	defer explain(&err, "delete", object.Kind, object.Name)
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	client, err := a.resource(kind, namespace.Name)
	if meta.IsNoMatchError(err) {
		client, err = a.resource(kind.GroupKind().WithVersion(""), namespace.Name) // the cluster may serve another version
	}
	if meta.IsNoMatchError(err) {
		return nil // the API server deletes the objects with their kind
	}
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	// An initializer without the permission to read the object, and without its UID, never applied it.
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && object.UID == "" {
		return nil
	}
	if err != nil {
		return err
	}
	// Without a UID, it may have been applied right before a crash.
	ours := live.GetUID() == object.UID || object.UID == "" && a.populationOf(live) == object.Population
	// For cluster-scoped objects, the inventory is not sufficient evidence.
	if !client.namespaced {
		ours = ours && slices.ContainsFunc(live.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == namespace.UID })
	}
	if !ours {
		return nil
	}
	return client.remove(ctx, object.Name, live.GetUID())
}

// appliedTime returns when a field manager last changed an object by applying it.
func appliedTime(object *unstructured.Unstructured, manager string) *metav1.Time {
	for _, fields := range object.GetManagedFields() {
		if fields.Manager == manager && fields.Operation == metav1.ManagedFieldsOperationApply && fields.Subresource == "" {
			return fields.Time
		}
	}
	return nil
}

// resource is the client of a kind, in a namespace if the kind is namespaced.
type resource struct {
	dynamic.ResourceInterface
	name       schema.GroupResource
	namespaced bool
}

func (a *Applier) resource(kind schema.GroupVersionKind, namespace string) (*resource, error) {
	mapping, err := a.mapping(kind)
	if err != nil {
		return nil, err
	}
	client := a.Client.Resource(mapping.Resource)
	r := &resource{ResourceInterface: client, name: mapping.Resource.GroupResource(), namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}
	if r.namespaced {
		r.ResourceInterface = client.Namespace(namespace)
	}
	return r, nil
}

// applicable returns the client of a kind, or an error if it is cluster-scoped and may not be applied.
func (a *Applier) applicable(kind schema.GroupVersionKind, namespace string) (*resource, error) {
	client, err := a.resource(kind, namespace)
	if err == nil && !client.namespaced {
		err = a.allowed(client.name)
	}
	return client, err
}

// mapping returns the resource of a kind. If the kind is not known, it runs discovery again: the kind may be new. Without a version, any
// version counts. Mapper also answers that it does not know a kind while the server of an aggregated API is unavailable.
func (a *Applier) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.Mapper.Reset()
		mapping, err = a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if meta.IsNoMatchError(err) && a.Discovery != nil && kind.Version != "" {
		if _, failed := a.Discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String()); failed != nil && !apierrors.IsNotFound(failed) {
			err = fmt.Errorf("cannot read which kinds %s has: %w", kind.GroupVersion(), failed)
		}
	}
	return mapping, err
}

// explain adds to an error what failed and the next step.
func explain(err *error, verb, kind, name string) {
	next := ""
	switch {
	case *err == nil:
		return
	case lacksPermission(*err):
		next = "grant the initializer the missing permission: "
	case apierrors.IsForbidden(*err):
		next = "kube-apiserver's admission rejects it: "
	case meta.IsNoMatchError(*err):
		next = "the cluster does not know the kind, install it or remove the manifest: "
	}
	*err = fmt.Errorf("cannot %s %s %q: %s%w", verb, kind, name, next, *err)
}

// lacksPermission reports whether RBAC rejects a request. Admission, such as a quota, answers with the same code.
func lacksPermission(err error) bool {
	text := err.Error()
	return apierrors.IsForbidden(err) && (strings.Contains(text, `User "`) && strings.Contains(text, `" cannot `) || strings.Contains(text, "attempting to grant RBAC permissions"))
}
