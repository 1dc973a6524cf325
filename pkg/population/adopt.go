/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Outcome is what became of an object in a namespace that exists already or, with DryRun, what would become of it.
type Outcome string

const (
	// Created: the object did not exist.
	Created Outcome = "created"
	// Configured: it existed, belonged to a population, and was changed.
	Configured Outcome = "configured"
	// Unchanged: the namespace already had it.
	Unchanged Outcome = "unchanged"
	// Conflict: another client owns the object or one of its fields. It was not changed.
	Conflict Outcome = "conflict"
	// Refused: it cannot be applied or deleted.
	Refused Outcome = "refused"
	// Deleted: its manifest was removed.
	Deleted Outcome = "deleted"
)

// ErrChanged is the error of Await in a namespace that populations must not change any more.
var ErrChanged = errors.New("it was frozen, deleted or created again meanwhile")

// Await waits for Pace. Then it returns ErrChanged if the namespace is not open any more, or is another one of the same name.
// Without Pace, it does nothing.
func (a *Applier) Await(ctx context.Context, namespace *corev1.Namespace) error {
	if a.Pace == nil {
		return nil
	}
	if err := a.Pace.Wait(ctx); err != nil {
		return err
	}
	live, err := a.reread(ctx, namespace)
	if err == nil && !IsOpen(live) {
		err = fmt.Errorf("namespace %q: %w", namespace.Name, ErrChanged)
	}
	return err
}

// reread reads a namespace again. The error is ErrChanged if it is gone, or another one of the same name.
func (a *Applier) reread(ctx context.Context, namespace *corev1.Namespace) (*unstructured.Unstructured, error) {
	live, err := a.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, namespace.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.GetUID() != namespace.UID {
		err = ErrChanged
	}
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", namespace.Name, err)
	}
	return live, nil
}

var errDeleted = errors.New("it is being deleted, and is applied again after it is removed; if it stays, check its finalizers")

// Adopt applies the content of an object to a namespace that exists already. Unlike Apply, it changes no object that
// belongs to another client, and no field that another client owns. inventory has what was applied for manifests that still
// exist: labels alone prove nothing, since tenants can write them. Adopt returns what is stored, or an error if the outcome is Conflict or
// Refused. If the error is temporary, there is no outcome yet.
func (a *Applier) Adopt(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, inventory []v1alpha1.PopulatedObject) (
	stored *unstructured.Unstructured, outcome Outcome, err error,
) {
	defer explain(&err, "apply", content.GetKind(), content.GetName())
	client, err := a.applicable(content.GroupVersionKind(), namespace.Name)
	if err != nil {
		return nil, Refused, err
	}
	err = retry.OnError(retry.DefaultRetry, isOutdated, func() (err error) {
		stored, outcome, err = a.adopt(ctx, client, namespace, content.DeepCopy(), inventory) // which is the caller's
		return err
	})
	return stored, outcome, err
}

// adopt reads an object and applies a content to it.
func (a *Applier) adopt(ctx context.Context, client *resource, namespace *corev1.Namespace, content *unstructured.Unstructured, inventory []v1alpha1.PopulatedObject) (
	*unstructured.Unstructured, Outcome, error,
) {
	live, err := client.find(ctx, content.GetName())
	if err != nil {
		return nil, Refused, err
	}
	if err := client.place(namespace, content, live); err != nil {
		return nil, Conflict, err
	}
	if live != nil {
		switch owner := a.populationOf(live); {
		case owner == "":
			return nil, Conflict, errOfOther(live)
		case live.GetDeletionTimestamp() != nil:
			return nil, Refused, errDeleted
		case owner > content.GetLabels()[v1alpha1.LabelPopulation] && isOf(owner, live, inventory):
			return live, Unchanged, nil // the manifest of the later population counts
		}
		content.SetResourceVersion(live.GetResourceVersion()) // it has had the same owner since
	}
	stored, err := client.Apply(ctx, content.GetName(), content, a.options(false))
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return nil, Conflict, err
	case err != nil:
		return nil, Refused, err
	case live == nil && a.isShared(stored):
		return nil, Conflict, a.release(ctx, client, stored)
	case live == nil:
		return stored, Created, nil
	case live.GetResourceVersion() == stored.GetResourceVersion() && (!a.DryRun || sameContent(live, stored)):
		return stored, Unchanged, nil
	}
	return stored, Configured, nil
}

// isShared reports whether an object also has fields of other clients.
func (a *Applier) isShared(stored *unstructured.Unstructured) bool {
	return slices.ContainsFunc(stored.GetManagedFields(), func(fields metav1.ManagedFieldsEntry) bool {
		return fields.Subresource == "" && fields.Manager != a.FieldManager
	})
}

// release removes the fields that were applied to an object that another client created right before. It returns why the
// object is in conflict.
func (a *Applier) release(ctx context.Context, client *resource, stored *unstructured.Unstructured) error {
	identity := &unstructured.Unstructured{}
	identity.SetGroupVersionKind(stored.GroupVersionKind())
	identity.SetName(stored.GetName())
	identity.SetUID(stored.GetUID())
	var released *unstructured.Unstructured
	if err := retry.OnError(retry.DefaultBackoff, IsTemporary, func() (err error) {
		released, err = client.Apply(ctx, stored.GetName(), identity, a.options(false))
		return err
	}); err != nil {
		return err
	}
	return errOfOther(released)
}

// errOfOther says that an object belongs to another client.
func errOfOther(live *unstructured.Unstructured) error {
	return fmt.Errorf("it exists, and %s created or changed it: change the name in the manifest, or delete the object", managersOf(live))
}

// sameContent compares two objects without their managed fields. A dry run does not change the resource version.
func sameContent(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.SetManagedFields(nil)
	b.SetManagedFields(nil)
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// isOf reports whether an inventory has an object for a population.
func isOf(population string, live *unstructured.Unstructured, inventory []v1alpha1.PopulatedObject) bool {
	return slices.ContainsFunc(inventory, func(entry v1alpha1.PopulatedObject) bool {
		return entry.Population == population && entry.UID != "" && entry.UID == live.GetUID()
	})
}

// isOutdated reports whether an object changed after it was read.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// IsTemporary reports whether an error says nothing about the object, but that the API server or the network is overloaded or
// fails, or that the namespace has changed. A webhook that fails is for an administrator to repair.
func IsTemporary(err error) bool {
	var transport *url.Error
	return errors.Is(err, ErrChanged) || isOutdated(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) && !strings.Contains(err.Error(), "failed calling webhook") ||
		errors.As(err, &transport) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// populationOf returns the population to which an object belongs, or nothing: its label names the population, and the
// initializer applied the object.
func (a *Applier) populationOf(live *unstructured.Unstructured) string {
	if appliedTime(live, a.FieldManager) == nil {
		return ""
	}
	return live.GetLabels()[v1alpha1.LabelPopulation]
}

// managersOf names the field managers of an object.
func managersOf(live *unstructured.Unstructured) string {
	var names []string
	for _, fields := range live.GetManagedFields() {
		if name := fmt.Sprintf("%q", fields.Manager); fields.Subresource == "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "another client"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// IsOpen reports whether a namespace can get objects although it exists already: it is open, neither frozen nor being
// deleted, and not one of Kubernetes. Whether it is exempt is for the caller to check.
func IsOpen(namespace metav1.Object) bool {
	labels := namespace.GetLabels()
	_, closed := labels[v1alpha1.LabelInitializing]
	_, frozen := labels[v1alpha1.LabelFrozen]
	return !closed && !frozen && namespace.GetDeletionTimestamp() == nil && !strings.HasPrefix(namespace.GetName(), "kube-")
}
