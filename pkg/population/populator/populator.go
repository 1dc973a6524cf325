/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package populator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	typed "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
	"github.com/nsinit/nsinit/pkg/util/cached"
	"github.com/nsinit/nsinit/pkg/util/printable"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

const (
	reasonApplied = "Applied"
	reasonFailed  = "ManifestFailed"
	// atOnce is how many objects of a namespace are applied at the same time.
	atOnce = 8
)

// Populator applies populations to namespaces.
type Populator struct {
	applier *population.Applier
	client  typed.NsinitV1alpha1Interface
	// follow is called with the kind of each object whose drift is repaired.
	follow func(schema.GroupVersionKind)
	// populations lists the populations.
	populations cached.Reads[[]*population.Population]
}

// New returns a Populator. It calls follow with the kind of an object whose drift is repaired, each time it applies one.
func New(applier *population.Applier, client typed.NsinitV1alpha1Interface, follow func(schema.GroupVersionKind)) *Populator {
	p := &Populator{applier: applier, client: client, follow: follow}
	p.populations.What, p.populations.Read, p.populations.Clock = "the NamespacePopulations", p.list, timing.SystemClock()
	return p
}

// Initialize applies every manifest to a closed namespace. It is an idempotent initializer.Func. No error is permanent:
// an administrator can fix a population while the namespace waits.
func (p *Populator) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	if namespace.Annotations[v1alpha1.AnnotationCreatedBy] == "" {
		return fmt.Errorf("the namespace has no annotation %s, so its creator is unknown: run kubectl nsinit check to see whether the policy nsinit-stamp is in force", v1alpha1.AnnotationCreatedBy)
	}
	return p.Populate(ctx, namespace, true)
}

// Populate applies every manifest to a closed namespace, or those whose drift is repaired to an open one. It deletes
// objects that have no manifest any more.
func (p *Populator) Populate(ctx context.Context, namespace *corev1.Namespace, closed bool) error {
	populations, err := p.populations.Do(ctx)
	if err != nil {
		return err
	}
	if closed && len(populations) == 0 {
		// The populations may have been lost: without any, the initializer would not be registered.
		return errors.New("there is no NamespacePopulation: create one, which can be empty, or remove the initializer from its configuration")
	}
	tasks, announced, err := p.begin(ctx, namespace, populations, closed)
	if err != nil {
		return err
	}
	// gofail: var populationAfterAnnounce struct{}
	var objects []v1alpha1.PopulatedObject
	var failures []string
	together := p.applyTogether(ctx, namespace, tasks)
	for i, task := range tasks {
		entry, remains := together[i], true
		if entry.State != v1alpha1.PopulatedObjectApplied {
			entry, remains, _ = p.do(ctx, namespace, task) // the entry has the error
		}
		if remains {
			objects = append(objects, entry)
		}
		if entry.State == v1alpha1.PopulatedObjectFailed && task.action != keep {
			failures = append(failures, failureOf(entry))
		}
	}
	if err := p.conclude(ctx, announced, objects); err != nil {
		return err
	}
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return errors.New(failures[0])
	}
	return fmt.Errorf("%s (and %d more, see kubectl get populatednamespace %s --output=yaml)", failures[0], len(failures)-1, namespace.Name)
}

// begin plans the tasks for a namespace, and stores them in its inventory.
func (p *Populator) begin(ctx context.Context, namespace *corev1.Namespace, populations []*population.Population, closed bool) (
	tasks []task, announced *v1alpha1.PopulatedNamespace, err error,
) {
	wanted, manifests := population.Render(populations, namespace), population.Keys(populations)
	// gofail: var populationBeforeInventory struct{}
	inventory := newInventory(namespace)
	for isNew := closed; ; isNew = false {
		if !isNew {
			if inventory, err = p.inventory(ctx, namespace); err != nil {
				return nil, nil, err
			}
		}
		tasks = plan(inventory.Status.Objects, wanted, manifests, closed)
		if !closed {
			leaveToRollout(tasks, populations)
		}
		announced, err = p.announce(ctx, inventory, tasks)
		if !isNew || !apierrors.IsAlreadyExists(err) {
			return tasks, announced, err
		}
		// This is a retry, or a former namespace had the name.
	}
}

// list returns the populations in order. It does not use a cache, so it never misses a population that was created before
// the namespace.
func (p *Populator) list(ctx context.Context) ([]*population.Population, error) {
	list, err := p.client.NamespacePopulations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the NamespacePopulations: %w", err)
	}
	population.Sort(list.Items)
	var populations []*population.Population
	var errs []error
	for _, item := range list.Items {
		compiled, err := p.applier.Compiler.Compile(&item)
		if err != nil {
			errs = append(errs, fmt.Errorf("NamespacePopulation %s is not valid: %w", item.Name, err))
		}
		populations = append(populations, compiled)
	}
	p.applier.Compiler.Retain(list.Items)
	return populations, errors.Join(errs...)
}

// applyTogether applies the objects at the same time. It returns their entries, by task. What it does not return as applied
// is left to do, in order: an object can need an earlier one, and of two manifests of one object the later one counts.
func (p *Populator) applyTogether(ctx context.Context, namespace *corev1.Namespace, tasks []task) []v1alpha1.PopulatedObject {
	entries := make([]v1alpha1.PopulatedObject, len(tasks))
	count := map[population.Identity]int{}
	for _, task := range tasks {
		count[population.IdentityOf(task.entry)]++
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, task := range tasks {
		if task.action == apply && count[population.IdentityOf(task.entry)] == 1 {
			group.Go(func() error {
				entries[i], _, _ = p.do(ctx, namespace, task)
				return nil
			})
		}
	}
	_ = group.Wait() // the entries have the errors
	return entries
}

// inventory returns the inventory of a namespace, or one that is not stored. It deletes that of a former namespace of the
// same name.
func (p *Populator) inventory(ctx context.Context, namespace *corev1.Namespace) (*v1alpha1.PopulatedNamespace, error) {
	inventory, err := p.client.PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	if err == nil && inventory.Spec.NamespaceUID == namespace.UID {
		return inventory, nil
	}
	if err == nil {
		err = p.Forget(ctx, inventory)
	}
	if err != nil && !utilapierrors.IsAbsent(err) {
		return nil, fmt.Errorf("cannot read the inventory: %w", err)
	}
	return newInventory(namespace), nil
}

// newInventory returns an inventory that is not stored.
func newInventory(namespace *corev1.Namespace) *v1alpha1.PopulatedNamespace {
	return &v1alpha1.PopulatedNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID},
		}},
		Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: namespace.UID},
	}
}

// Forget deletes an inventory, and no other of its name.
func (p *Populator) Forget(ctx context.Context, inventory *v1alpha1.PopulatedNamespace) error {
	// gofail: var populationBeforeForget struct{}
	err := p.client.PopulatedNamespaces().Delete(ctx, inventory.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &inventory.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announce stores the inventory with the objects that are about to be applied.
func (p *Populator) announce(ctx context.Context, inventory *v1alpha1.PopulatedNamespace, tasks []task) (*v1alpha1.PopulatedNamespace, error) {
	known := sets.New[population.Identity]()
	for _, entry := range inventory.Status.Objects {
		known.Insert(population.IdentityOf(entry))
	}
	var added []v1alpha1.PopulatedObject
	for _, task := range tasks {
		if (task.action == apply || task.action == adopt) && !known.Has(population.IdentityOf(task.entry)) {
			added = append(added, task.entry)
		}
	}
	inventories := p.client.PopulatedNamespaces()
	inventory = inventory.DeepCopy()
	inventory.Status.Objects = append(inventory.Status.Objects, added...)
	if inventory.UID == "" {
		// gofail: var populationBeforeCreateInventory struct{}
		inventory, err := inventories.Create(ctx, inventory, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot create the inventory: %w", err)
		}
		return inventory, nil
	} else if len(added) == 0 {
		return inventory, nil
	}
	// gofail: var populationBeforeAnnounce struct{}
	inventory, err := inventories.UpdateStatus(ctx, inventory, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot update the inventory: %w", err)
	}
	return inventory, nil
}

// do runs a task other than adopt. It returns the new entry, whether the object remains in the inventory, and the error that
// the entry has.
func (p *Populator) do(ctx context.Context, namespace *corev1.Namespace, t task) (v1alpha1.PopulatedObject, bool, error) {
	entry := t.entry
	failed := func(err error) (v1alpha1.PopulatedObject, bool, error) {
		entry.State, entry.Message = v1alpha1.PopulatedObjectFailed, strings.TrimSpace(printable.Lines(err.Error()))
		return entry, true, err
	}
	switch t.action {
	case report:
		return failed(t.object.Err)
	case prune:
		// gofail: var populationBeforePrune struct{}
		if err := p.applier.Prune(ctx, namespace, entry); err != nil {
			return failed(err)
		}
		klog.FromContext(ctx).Info("Pruned", "population", entry.Population, "manifest", entry.Manifest, "kind", entry.Kind, "object", entry.Name)
		return entry, false, nil
	case apply:
		var replaceable types.UID
		if t.object.DriftPolicy == v1alpha1.DriftRepair {
			p.follow(t.object.Content.GroupVersionKind())
			replaceable = entry.UID
		}
		// gofail: var populationBeforeApply struct{}
		stored, err := p.applier.Repair(ctx, namespace, t.object.Content, replaceable)
		if err != nil {
			return failed(err)
		}
		entry = p.applied(t, stored)
	}
	return entry, true, nil
}

// applied returns the entry of an object that was applied.
func (p *Populator) applied(t task, stored *unstructured.Unstructured) v1alpha1.PopulatedObject {
	entry := t.entry
	entry.UID, entry.State, entry.Message, entry.ContentHash = stored.GetUID(), v1alpha1.PopulatedObjectApplied, "", t.object.Hash
	entry.LastAppliedTime = population.AppliedTime(stored, p.applier.FieldManager)
	return entry
}

func failureOf(entry v1alpha1.PopulatedObject) string {
	return fmt.Sprintf("%s/%s: %s", entry.Population, entry.Manifest, entry.Message)
}

// conclude writes the results to the inventory, if it changes.
func (p *Populator) conclude(ctx context.Context, inventory *v1alpha1.PopulatedNamespace, objects []v1alpha1.PopulatedObject) error {
	updated := inventory.DeepCopy()
	updated.Status.Objects = objects
	condition := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: reasonApplied, ObservedGeneration: inventory.Generation,
		Message: fmt.Sprintf("objects: %d", len(objects))}
	if i := slices.IndexFunc(objects, func(o v1alpha1.PopulatedObject) bool { return o.State != v1alpha1.PopulatedObjectApplied }); i >= 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonFailed, failureOf(objects[i])
	}
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	condition.Type = v1alpha1.ConditionReady // for tools that know no other condition
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(inventory.Status, updated.Status) {
		return nil
	}
	// gofail: var populationBeforeConclude struct{}
	if _, err := p.client.PopulatedNamespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("cannot update the inventory: %w", err)
	}
	return nil
}
