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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
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
	// Refused: it cannot be applied.
	Refused Outcome = "refused"
)

// Adopt applies the content of an object to a namespace that exists already. Unlike Apply, it changes no object that
// belongs to another client when it is read, and no field that another client owns. An object that another client creates
// right after the read gets the fields that it lacks. inventory has what was applied for manifests that still exist: labels
// alone prove nothing, since tenants can write them. Adopt returns what is stored, or an error if the outcome is Conflict or
// Refused. If the error is temporary, there is no outcome yet.
func (a *Applier) Adopt(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, inventory []v1alpha1.PopulatedObject) (
	stored *unstructured.Unstructured, outcome Outcome, err error,
) {
	defer explain(&err, "apply", content.GetKind(), content.GetName())
	if a.Pace != nil {
		if err := a.Pace.Wait(ctx); err != nil {
			return nil, Refused, err
		}
	}
	client, err := a.resource(content.GroupVersionKind(), namespace.Name)
	if err != nil {
		return nil, Refused, err
	}
	if err := a.permits(client); err != nil {
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
		if live.GetDeletionTimestamp() != nil {
			return nil, Refused, errors.New("it is being deleted, and is applied again after it is removed; if it stays, check its finalizers")
		}
		switch owner := a.populationOf(live); {
		case owner == "":
			return nil, Conflict, fmt.Errorf("it exists, and %s created or changed it: change the name in the manifest, or delete the object", managersOf(live))
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
	case live == nil:
		return stored, Created, nil
	case live.GetResourceVersion() == stored.GetResourceVersion() && (!a.DryRun || SameContent(live, stored)):
		return stored, Unchanged, nil
	}
	return stored, Configured, nil
}

// SameContent compares two objects without their managed fields. A dry run does not change the resource version.
func SameContent(a, b *unstructured.Unstructured) bool {
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

// IsTemporary reports whether an error of Adopt says nothing about the object, but that the API server or the network is
// overloaded or fails. A webhook that fails is for an administrator to repair.
func IsTemporary(err error) bool {
	var transport *url.Error
	return isOutdated(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) && !strings.Contains(err.Error(), "failed calling webhook") ||
		errors.As(err, &transport) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// populationOf returns the population to which an object belongs, or nothing: its label names the population, and the
// initializer applied the object.
func (a *Applier) populationOf(live *unstructured.Unstructured) string {
	if AppliedTime(live, a.FieldManager) == nil {
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

// Result is the outcome of a manifest in a namespace.
type Result struct {
	Key
	Outcome Outcome
	// Message is why the outcome is Conflict or Refused.
	Message string
}

// ResultOf returns the outcome that an entry of an inventory records.
func ResultOf(entry v1alpha1.PopulatedObject) Result {
	result := Result{Key: Key{entry.Population, entry.Manifest}, Outcome: Refused, Message: entry.Message}
	switch entry.State {
	case v1alpha1.PopulatedObjectApplied:
		result.Outcome = Unchanged
	case v1alpha1.PopulatedObjectConflict:
		result.Outcome = Conflict
	case v1alpha1.PopulatedObjectFailed, v1alpha1.PopulatedObjectPending:
	}
	return result
}

// IsOpen reports whether a namespace can get objects although it exists already: it is open, neither frozen nor being
// deleted, and not one of Kubernetes. Whether it is exempt is for the caller to check.
func IsOpen(namespace metav1.Object) bool {
	labels := namespace.GetLabels()
	_, closed := labels[v1alpha1.LabelInitializing]
	_, frozen := labels[v1alpha1.LabelFrozen]
	return !closed && !frozen && namespace.GetDeletionTimestamp() == nil && !strings.HasPrefix(namespace.GetName(), "kube-")
}

// Wanted is an object that a namespace should have.
type Wanted struct {
	Key
	// Identity is empty if the manifest cannot be rendered.
	Identity Identity
}

// Wanted returns what identifies the object.
func (o *Object) Wanted() Wanted {
	w := Wanted{Key: o.Key}
	if o.Content != nil {
		kind := o.Content.GroupVersionKind()
		w.Identity = Identity{kind.Group, kind.Kind, o.Content.GetName()}
	}
	return w
}

// IsIn reports whether an inventory has the object: it was applied for this manifest. A manifest that cannot be rendered may
// have been applied as any object.
func (w Wanted) IsIn(inventory []v1alpha1.PopulatedObject) bool {
	return slices.ContainsFunc(inventory, func(entry v1alpha1.PopulatedObject) bool {
		return entry.UID != "" && entry.Population == w.Population && entry.Manifest == w.Manifest &&
			(w.Identity == Identity{} || IdentityOf(entry) == w.Identity)
	})
}

// Existing returns the objects in an inventory that belong to a manifest.
func Existing(inventory []v1alpha1.PopulatedObject, manifests map[Key]struct{}) []v1alpha1.PopulatedObject {
	return slices.DeleteFunc(slices.Clone(inventory), func(entry v1alpha1.PopulatedObject) bool {
		_, exists := manifests[Key{entry.Population, entry.Manifest}]
		return !exists
	})
}

// Report returns the outcome of each object in a namespace that exists already. The Applier must have DryRun. An object in
// the inventory is not compared: its DriftPolicy decides what happens to it. An error means that some results, which are
// Refused, are temporary.
func (a *Applier) Report(ctx context.Context, namespace *corev1.Namespace, objects []Object, inventory []v1alpha1.PopulatedObject) ([]Result, error) {
	results := make([]Result, 0, len(objects))
	var temporary error
	for _, object := range objects {
		result := Result{Key: object.Key, Outcome: Unchanged}
		err := object.Err
		switch {
		case object.Wanted().IsIn(inventory):
			err = nil
		case err != nil:
			result.Outcome = Refused
		default:
			if _, result.Outcome, err = a.Adopt(ctx, namespace, object.Content, inventory); IsTemporary(err) {
				temporary = err
			}
		}
		if err != nil {
			result.Message = strings.TrimSpace(err.Error())
		}
		results = append(results, result)
	}
	return results, temporary
}
