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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Applier applies objects to a cluster, and removes them.
type Applier struct {
	// Client does it, with its own identity.
	Client dynamic.Interface
	// Mapper tells the resource of a kind.
	Mapper meta.ResettableRESTMapper
	// FieldManager owns the fields that are applied.
	FieldManager string
	// ClusterScoped are the resources outside of namespaces that may be applied.
	ClusterScoped map[schema.GroupResource]struct{}
	// DryRun stores nothing.
	DryRun bool
	// Reviews answers what the identity may do. Only Check and Readiness use it.
	Reviews authorizationclient.SelfSubjectAccessReviewInterface
}

// Apply applies the content of an object for a namespace, and returns what is stored.
func (a *Applier) Apply(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	what := fmt.Sprintf("%s %q", content.GetKind(), content.GetName())
	client, err := a.resource(content.GroupVersionKind(), namespace.Name)
	if err != nil {
		return nil, explain("apply", what, err)
	}
	content = content.DeepCopy() // which is the caller's
	if client.namespaced {
		content.SetNamespace(namespace.Name)
	} else if err := a.own(ctx, client, namespace, content); err != nil {
		return nil, explain("apply", what, err)
	}
	options := metav1.ApplyOptions{FieldManager: a.FieldManager, Force: true}
	if a.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	applied, err := client.Apply(ctx, content.GetName(), content, options)
	if err != nil {
		return nil, explain("apply", what, err)
	}
	return applied, nil
}

// Get returns the object that is stored under the name of a content.
func (a *Applier) Get(ctx context.Context, namespace string, content *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client, err := a.resource(content.GroupVersionKind(), namespace)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, content.GetName(), metav1.GetOptions{})
}

// own makes an object outside of namespaces leave with its namespace: the garbage collector
// sees to it. What is there already must be the same namespace's.
func (a *Applier) own(ctx context.Context, client *resource, namespace *corev1.Namespace, content *unstructured.Unstructured) error {
	if err := a.allowed(client.name); err != nil {
		return err
	}
	content.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}})
	live, err := client.Get(ctx, content.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, owner := range live.GetOwnerReferences() {
		if owner.UID == namespace.UID {
			content.SetResourceVersion(live.GetResourceVersion())
			return nil
		}
		if owner.Kind == "Namespace" && owner.Name == namespace.Name {
			return fmt.Errorf("the one of the former namespace %q has not been collected yet", namespace.Name)
		}
	}
	return errors.New("it exists, and is not of this namespace: let its name depend on that of the namespace")
}

// allowed returns why a resource outside of namespaces may not be applied, or nil.
func (a *Applier) allowed(resource schema.GroupResource) error {
	if _, allowed := a.ClusterScoped[resource]; allowed {
		return nil
	}
	return fmt.Errorf("%s are outside of namespaces, and this initializer may not apply them: take the manifest out, or let an administrator add %s to --cluster-scoped-resources",
		resource, resource)
}

// Prune removes an object that a population does not hold any more. One that somebody else made
// in its place is left alone.
func (a *Applier) Prune(ctx context.Context, namespace *corev1.Namespace, object v1alpha1.PopulatedObject) error {
	what := fmt.Sprintf("%s %q", object.Kind, object.Name)
	client, err := a.resource(schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), namespace.Name)
	if meta.IsNoMatchError(err) {
		return nil // the kind is gone, and every object with it
	}
	if err != nil {
		return explain("delete", what, err)
	}
	live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	// Who was never let apply it, and may not even read it, has made nothing.
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && object.UID == "" {
		return nil
	}
	if err != nil {
		return explain("delete", what, err)
	}
	// Without a UID, it may have been applied right before the end of this process.
	ours := live.GetUID() == object.UID || object.UID == "" && live.GetLabels()[v1alpha1.LabelPopulation] == object.Population
	// Outside of namespaces, a record alone is not believed.
	if !client.namespaced {
		ours = ours && slices.ContainsFunc(live.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == namespace.UID })
	}
	if !ours {
		return nil
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = client.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return explain("delete", what, err)
}

// AppliedTime returns when a field manager last changed an object by applying it.
func AppliedTime(object *unstructured.Unstructured, manager string) *metav1.Time {
	for _, fields := range object.GetManagedFields() {
		if fields.Manager == manager && fields.Operation == metav1.ManagedFieldsOperationApply && fields.Subresource == "" {
			return fields.Time
		}
	}
	return nil
}

// resource reaches the objects of a kind, in a namespace if they are in one.
type resource struct {
	dynamic.ResourceInterface
	name       schema.GroupResource
	namespaced bool
}

func (a *Applier) resource(kind schema.GroupVersionKind, namespace string) (*resource, error) {
	mapping, err := a.Mapping(kind)
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

// Mapping asks for the resource of a kind, and once more after a reset: the kind may have been
// added to the cluster since.
func (a *Applier) Mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.Mapper.Reset()
		mapping, err = a.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}

// explain says what could not be done, and what helps.
func explain(verb, what string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot %s %s: give the initializer the rights that are missing: %w", verb, what, err)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("cannot %s %s: the cluster does not know the kind, install it or take the manifest out: %w", verb, what, err)
	}
	return fmt.Errorf("cannot %s %s: %w", verb, what, err)
}

// Identity tells objects of one namespace apart. The version is none of it.
type Identity struct{ Group, Kind, Name string }

// IdentityOf returns the identity of an object that was recorded.
func IdentityOf(object v1alpha1.PopulatedObject) Identity {
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	return Identity{kind.Group, kind.Kind, object.Name}
}
