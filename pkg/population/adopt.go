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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/util/printable"
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
	live, err := a.Client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, namespace.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (live.GetUID() != namespace.UID || !IsOpen(live)) {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("namespace %q: %w", namespace.Name, err)
	}
	return nil
}

// Adopt applies the content of an object to a namespace that exists already. Unlike Apply, it changes no object that
// belongs to another client, and no field that another client owns. inventory has what was applied for manifests that still
// exist: labels alone prove nothing, since tenants can write them. Adopt returns what is stored, or an error if the outcome is Conflict or
// Refused. If the error is temporary, there is no outcome yet.
func (a *Applier) Adopt(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, inventory []v1alpha1.PopulatedObject) (
	stored *unstructured.Unstructured, outcome Outcome, err error,
) {
	defer explain(&err, "apply", content.GetKind(), content.GetName())
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
		switch owner := a.populationOf(live); {
		case owner == "":
			return nil, Conflict, errOfOther(live)
		case live.GetDeletionTimestamp() != nil:
			return nil, Refused, errors.New("it is being deleted, and is applied again after it is removed; if it stays, check its finalizers")
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
	case live.GetResourceVersion() == stored.GetResourceVersion() && (!a.DryRun || SameContent(live, stored)):
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

// Try returns what would become of an object if Repair applied it. The Applier must have DryRun.
func (a *Applier) Try(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, former types.UID) (Outcome, error) {
	live, err := a.Get(ctx, namespace.Name, content)
	if err != nil {
		live = nil // Apply reports the cause
	}
	applied, err := a.Repair(ctx, namespace, content, former)
	switch {
	case err != nil:
		return Refused, err
	case live == nil:
		return Created, nil
	case SameContent(live, applied):
		return Unchanged, nil
	}
	return Configured, nil
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
	// Deletes is the object to delete, if the manifest was removed or has another object now.
	Deletes Identity
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
	// Hash is that of the Object.
	Hash string
}

// Wanted returns what identifies the object.
func (o *Object) Wanted() Wanted {
	w := Wanted{Key: o.Key, Hash: o.Hash}
	if o.Content != nil {
		kind := o.Content.GroupVersionKind()
		w.Identity = Identity{kind.Group, kind.Kind, o.Content.GetName()}
	}
	return w
}

// find returns the index of the object in an inventory: it was applied for this manifest. A manifest that cannot be rendered
// may have been applied as any object.
func (w Wanted) find(inventory []v1alpha1.PopulatedObject) int {
	return slices.IndexFunc(inventory, func(entry v1alpha1.PopulatedObject) bool {
		return entry.UID != "" && entry.Population == w.Population && entry.Manifest == w.Manifest &&
			(w.Identity == Identity{} || IdentityOf(entry) == w.Identity)
	})
}

// IsIn reports whether an inventory has the object.
func (w Wanted) IsIn(inventory []v1alpha1.PopulatedObject) bool { return w.find(inventory) >= 0 }

// Current returns the entry of the object in an inventory, if there is nothing to roll out: the object was created, and if its
// drift is repaired, its manifest has not changed since. Otherwise, it returns nil.
func (w Wanted) Current(inventory []v1alpha1.PopulatedObject) *v1alpha1.PopulatedObject {
	i := w.find(inventory)
	if i < 0 || w.Hash != "" && w.Hash != inventory[i].ContentHash {
		return nil
	}
	return &inventory[i]
}

// IsProblem reports whether an entry of an inventory says why a namespace did not get the object of a manifest.
func (w Wanted) IsProblem(entry v1alpha1.PopulatedObject) bool {
	return entry.Population == w.Population && entry.Manifest == w.Manifest &&
		(entry.State == v1alpha1.PopulatedObjectConflict || entry.State == v1alpha1.PopulatedObjectFailed) &&
		(entry.Kind == "" || w.Identity == Identity{} || w.Identity == IdentityOf(entry))
}

// Obsolete returns the objects in an inventory that a rollout of the population deletes: those of removed manifests, and of
// manifests that follow another object now. wanted are the objects of the population in the namespace. An object that another
// manifest has is not among them.
func (p *Population) Obsolete(wanted []Wanted, inventory []v1alpha1.PopulatedObject) []v1alpha1.PopulatedObject {
	isObsolete := func(entry v1alpha1.PopulatedObject) bool {
		if entry.Population != p.Name {
			return false
		}
		if i := slices.IndexFunc(wanted, func(w Wanted) bool { return w.Manifest == entry.Manifest }); i >= 0 {
			return wanted[i].Hash != "" && wanted[i].Identity != IdentityOf(entry)
		}
		return !slices.ContainsFunc(p.manifests, func(m manifest) bool { return m.Name == entry.Manifest })
	}
	var obsolete []v1alpha1.PopulatedObject
	for _, entry := range inventory {
		if isObsolete(entry) && IsPruned(entry) && !slices.ContainsFunc(inventory, func(other v1alpha1.PopulatedObject) bool {
			return other.UID != "" && IdentityOf(other) == IdentityOf(entry) && !isObsolete(other)
		}) {
			obsolete = append(obsolete, entry)
		}
	}
	return obsolete
}

// IsPruned reports whether an object is deleted when its manifest is removed. Objects of other clients stay.
func IsPruned(entry v1alpha1.PopulatedObject) bool {
	return entry.Kind != "" && !IsOfOther(entry) && entry.PrunePolicy == v1alpha1.PruneDelete
}

// IsOfOther reports whether an entry is an object of another client, which was never applied.
func IsOfOther(entry v1alpha1.PopulatedObject) bool {
	return entry.State == v1alpha1.PopulatedObjectConflict && entry.UID == ""
}

// Deletions returns what a rollout of the population does with its obsolete objects. objects are those of all populations in the
// namespace: an obsolete object that one of them is still to get stays.
func (p *Population) Deletions(objects []Object, inventory []v1alpha1.PopulatedObject) []Result {
	var own []Wanted
	awaited := sets.New[Identity]()
	for _, object := range objects {
		w := object.Wanted()
		if awaited.Insert(w.Identity); w.Population == p.Name {
			own = append(own, w)
		}
	}
	var results []Result
	for _, entry := range p.Obsolete(own, inventory) {
		result := Result{Key: Key{entry.Population, entry.Manifest}, Deletes: IdentityOf(entry), Outcome: Deleted}
		if awaited.Has(result.Deletes) {
			result.Outcome = Unchanged
		}
		results = append(results, result)
	}
	return results
}

// Existing returns the objects in an inventory that belong to a manifest.
func Existing(inventory []v1alpha1.PopulatedObject, manifests map[Key]struct{}) []v1alpha1.PopulatedObject {
	return slices.DeleteFunc(slices.Clone(inventory), func(entry v1alpha1.PopulatedObject) bool {
		_, exists := manifests[Key{entry.Population, entry.Manifest}]
		return !exists
	})
}

// Report returns the outcome of each object in a namespace that exists already. The Applier must have DryRun. An object that is
// current is not compared: its DriftPolicy decides what happens to it. An error means that some results, which are Refused,
// are temporary.
func (a *Applier) Report(ctx context.Context, namespace *corev1.Namespace, objects []Object, inventory []v1alpha1.PopulatedObject) ([]Result, error) {
	results := make([]Result, 0, len(objects))
	var temporary error
	for _, object := range objects {
		result := Result{Key: object.Key, Outcome: Unchanged}
		if object.Wanted().Current(inventory) == nil {
			var err error
			if result.Outcome, err = a.report(ctx, namespace, object, inventory); IsTemporary(err) {
				temporary = err
			}
			if err != nil {
				result.Message = strings.TrimSpace(printable.Lines(err.Error()))
			}
		}
		results = append(results, result)
	}
	return results, temporary
}

// report returns what a rollout would do with one object.
func (a *Applier) report(ctx context.Context, namespace *corev1.Namespace, object Object, inventory []v1alpha1.PopulatedObject) (Outcome, error) {
	if object.Err != nil {
		return Refused, object.Err
	}
	if err := a.Await(ctx, namespace); err != nil {
		return Refused, err
	}
	if i := object.Wanted().find(inventory); i >= 0 {
		return a.Try(ctx, namespace, object.Content, inventory[i].UID)
	}
	_, outcome, err := a.Adopt(ctx, namespace, object.Content, inventory)
	return outcome, err
}
