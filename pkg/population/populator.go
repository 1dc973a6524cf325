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
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	typed "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/cached"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// Populator applies populations to namespaces. It adds each object to the inventory of the namespace, its PopulatedNamespace,
// before it applies the object, so that a crash at any step loses no object.
type Populator struct {
	*Applier
	// Wrote is called for each object and inventory that Populate or RollOut has changed in an open namespace, and Populated for the
	// inventory of a namespace that Initialize has populated. They can be nil.
	Wrote     func(namespace string, stored metav1.Object)
	Populated func(inventory *v1alpha1.PopulatedNamespace)
	// reporter is an Applier that stores nothing.
	reporter *Applier
	client   typed.NsinitV1alpha1Interface
	// populations lists the populations.
	populations cached.Reads[[]*Population]
	// late says that an object of the last namespace was not ready in time, so that those of the next one hardly are.
	late atomic.Bool
}

// NewPopulator returns a Populator that applies objects with an Applier.
func NewPopulator(applier *Applier, client typed.NsinitV1alpha1Interface) *Populator {
	reporter := *applier
	reporter.DryRun = true
	p := &Populator{Applier: applier, reporter: &reporter, client: client}
	p.populations.What, p.populations.Read, p.populations.Clock = "the NamespacePopulations", p.list, timing.SystemClock()
	return p
}

// Initialize applies every manifest to a closed namespace. It is an idempotent initializer.Func. No error is permanent:
// an administrator can fix a population while the namespace waits.
func (p *Populator) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	if namespace.Annotations[v1alpha1.AnnotationCreatedBy] == "" {
		return fmt.Errorf("the namespace has no annotation %s, so its creator is unknown: run kubectl nsinit check to see whether the policy nsinit-stamp is in force", v1alpha1.AnnotationCreatedBy)
	}
	return p.Populate(ctx, namespace, Initialize)
}

// Populate initializes or repairs a namespace. It deletes objects that have no manifest any more.
func (p *Populator) Populate(ctx context.Context, namespace *corev1.Namespace, mode Mode) error {
	results, err := p.change(ctx, namespace, mode, &Population{})
	if err != nil {
		return err
	}
	var failures []string
	for _, r := range results {
		if r.err != nil {
			failures = append(failures, failureOf(r.Entry))
		}
	}
	if len(failures) == 0 {
		return nil
	}
	failed := &incompleteError{text: failures[0]}
	_, failed.temporary = outcomesOf(results)
	if more := len(failures) - 1; more > 0 {
		failed.text += fmt.Sprintf(" (and %d more, see kubectl get populatednamespace %s --output=yaml)", more, namespace.Name)
	}
	return failed
}

// incompleteError says which objects failed. It is temporary if one of their errors is.
type incompleteError struct {
	text      string
	temporary error
}

func (e *incompleteError) Error() string { return e.text }
func (e *incompleteError) Unwrap() error { return e.temporary }

// RollOut brings the changes of a population to a namespace that exists. It returns the outcome of each manifest and deletion. An
// error means that the inventory could not be read or written, or that an object is to be tried again soon. The inventory has the
// reason.
func (p *Populator) RollOut(ctx context.Context, namespace *corev1.Namespace, of *Population) ([]Result, error) {
	results, err := p.change(ctx, namespace, RollOut, of)
	if err != nil {
		return nil, err
	}
	return outcomesOf(results)
}

// ReportRollOut returns what RollOut would do in a namespace with an inventory.
func (p *Populator) ReportRollOut(ctx context.Context, namespace *corev1.Namespace, of *Population, inventory []v1alpha1.PopulatedObject) ([]Result, error) {
	populations, err := p.with(ctx, of)
	if err != nil {
		return nil, err
	}
	return p.reporter.Report(ctx, namespace, RollOut, of.Name, populations, Render(populations, namespace), inventory)
}

// with returns the populations. The error is temporary if one, which was compiled from a cache, is not the current version. Without a name,
// it is not compared.
func (p *Populator) with(ctx context.Context, of *Population) ([]*Population, error) {
	populations, err := p.populations.Do(ctx)
	if err != nil || of.Name == "" {
		return populations, err
	}
	switch current := find(populations, of.Name); current {
	case nil:
		return nil, fmt.Errorf("NamespacePopulation %q was deleted meanwhile", of.Name)
	case of:
		return populations, nil
	}
	// The watch that showed it is late.
	return nil, apierrors.NewConflict(v1alpha1.Resource("namespacepopulations"), of.Name, errors.New("it has changed since its rollout began"))
}

// change plans the tasks for a namespace, stores them in its inventory, runs them, and stores the results. of is the population that
// is rolled out.
func (p *Populator) change(ctx context.Context, namespace *corev1.Namespace, mode Mode, of *Population) ([]result, error) {
	began := time.Now()
	populations, err := p.with(ctx, of)
	if err != nil {
		return nil, err
	}
	if mode == Initialize && len(populations) == 0 {
		// The populations may have been lost: without any, the initializer would not be registered.
		return nil, errors.New("there is no NamespacePopulation: create one, which can be empty, or remove the initializer from its configuration")
	}
	wanted, inventory := Render(populations, namespace), newInventory(namespace)
	// gofail: var populationBeforeInventory struct{}
	var tasks []Task
	var isNew bool
	for isFirst := mode == Initialize; ; isFirst = false { // again after a retry, or if a former namespace had the name
		if !isFirst {
			if inventory, err = p.inventory(ctx, namespace); err != nil {
				return nil, err
			}
		}
		tasks = Plan(mode, of.Name, populations, wanted, inventory.Status.Objects)
		isNew = inventory.UID == ""
		announced, err := p.announce(ctx, inventory, tasks)
		if err == nil {
			inventory = announced
			break
		}
		if !isFirst || !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	// gofail: var populationAfterAnnounce struct{}
	results := p.run(ctx, namespace, mode, began, tasks, existing(inventory.Status.Objects, populations))
	if mode == Initialize {
		p.awaitReady(ctx, namespace, results, isNew)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // it is no outcome that the process ends
	}
	concluded, err := p.conclude(ctx, inventory, results)
	switch {
	case mode == Initialize && concluded != nil && p.Populated != nil:
		p.Populated(concluded)
	case mode != Initialize && p.Wrote != nil:
		changed := written(tasks, results)
		if concluded != nil {
			changed = append(changed, concluded)
		}
		for _, object := range changed {
			p.Wrote(namespace.Name, object)
		}
	}
	return results, err
}

// list returns the populations in order. It does not use a cache, so it never misses a population that was created before
// the namespace.
func (p *Populator) list(ctx context.Context) ([]*Population, error) {
	list, err := p.client.NamespacePopulations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the NamespacePopulations: %w", err)
	}
	Sort(list.Items)
	var populations []*Population
	var errs []error
	for _, item := range list.Items {
		compiled, err := p.Compile(&item)
		if err != nil {
			errs = append(errs, fmt.Errorf("NamespacePopulation %s is not valid: %w", item.Name, err))
		}
		populations = append(populations, compiled)
	}
	p.Retain(list.Items)
	return populations, errors.Join(errs...)
}

// inventory returns the inventory of a namespace, or one that is not stored. It deletes that of a former namespace of the
// same name. A process that was paused may have read the namespace long ago, so that the inventory is that of the next one.
func (p *Populator) inventory(ctx context.Context, namespace *corev1.Namespace) (*v1alpha1.PopulatedNamespace, error) {
	inventory, err := p.client.PopulatedNamespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	if err == nil && inventory.Spec.NamespaceUID == namespace.UID {
		return inventory, nil
	}
	if err == nil {
		if _, err = p.reread(ctx, namespace); err == nil {
			err = p.Forget(ctx, inventory)
		}
	}
	if utilapierrors.IgnoreAbsent(err) != nil {
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
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &inventory.UID}}
	return utilapierrors.IgnoreAbsent(p.client.PopulatedNamespaces().Delete(ctx, inventory.Name, options))
}

// announce stores the inventory with the objects that are about to be applied.
func (p *Populator) announce(ctx context.Context, inventory *v1alpha1.PopulatedNamespace, tasks []Task) (*v1alpha1.PopulatedNamespace, error) {
	known := sets.New[Identity]()
	for _, entry := range inventory.Status.Objects {
		known.Insert(IdentityOf(entry))
	}
	var added []v1alpha1.PopulatedObject
	for _, task := range tasks {
		if (task.Action == Apply || task.Action == Adopt) && !known.Has(IdentityOf(task.Entry)) {
			added = append(added, task.Entry)
		}
	}
	inventories := p.client.PopulatedNamespaces()
	inventory = inventory.DeepCopy()
	inventory.Status.Objects = append(inventory.Status.Objects, added...)
	var err error
	switch {
	case inventory.UID == "":
		// gofail: var populationBeforeCreateInventory struct{}
		inventory, err = inventories.Create(ctx, inventory, metav1.CreateOptions{})
	case len(added) > 0:
		// gofail: var populationBeforeAnnounce struct{}
		inventory, err = inventories.UpdateStatus(ctx, inventory, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot store the inventory: %w", err)
	}
	return inventory, nil
}

func failureOf(entry v1alpha1.PopulatedObject) string {
	return fmt.Sprintf("%s/%s: %s", entry.Population, entry.Manifest, entry.Message)
}

// conclude writes the results to the inventory, and returns what is stored. It returns nil if the inventory does not change.
func (p *Populator) conclude(ctx context.Context, inventory *v1alpha1.PopulatedNamespace, results []result) (*v1alpha1.PopulatedNamespace, error) {
	var objects []v1alpha1.PopulatedObject
	for _, r := range results {
		if r.outcome != Deleted {
			objects = append(objects, r.Entry)
		}
	}
	updated := inventory.DeepCopy()
	updated.Status.Objects = objects
	condition := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: ReasonApplied, ObservedGeneration: inventory.Generation,
		Message: fmt.Sprintf("objects: %d", len(objects))}
	if i := slices.IndexFunc(objects, func(o v1alpha1.PopulatedObject) bool { return o.State != v1alpha1.PopulatedObjectApplied }); i >= 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonFailed, failureOf(objects[i])
	}
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	if i := slices.IndexFunc(objects, func(o v1alpha1.PopulatedObject) bool { return o.Message != "" }); condition.Status == metav1.ConditionTrue && i >= 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonNotReady, failureOf(objects[i])
	}
	condition.Type = v1alpha1.ConditionReady
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(inventory.Status, updated.Status) {
		return nil, nil
	}
	// gofail: var populationBeforeConclude struct{}
	stored, err := p.client.PopulatedNamespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot store the inventory: %w", err)
	}
	return stored, nil
}
