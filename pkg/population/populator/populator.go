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
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	typed "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/typed/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/population"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

const (
	reasonApplied = "Applied"
	reasonFailed  = "ManifestFailed"
)

// Populator puts what populations hold into namespaces.
type Populator struct {
	applier *population.Applier
	client  typed.NsinitV1alpha1Interface
	// follow is told which kinds of objects are to follow their manifests.
	follow func(schema.GroupVersionKind)

	mu       sync.Mutex
	compiled map[types.UID]compiled
}

type compiled struct {
	generation int64
	population *population.Population
	err        error
}

// New returns a Populator. The function is told which kinds of objects are to follow their
// manifests, as often as they are applied.
func New(applier *population.Applier, client typed.NsinitV1alpha1Interface, follow func(schema.GroupVersionKind)) *Populator {
	return &Populator{applier: applier, client: client, follow: follow, compiled: map[types.UID]compiled{}}
}

// Initialize applies every manifest to a namespace that is closed. It is idempotent. It is an
// initializer.Func. No error fails the initialization for good: populations can be mended while
// the namespace waits.
func (p *Populator) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	if namespace.Annotations[v1alpha1.AnnotationCreatedBy] == "" {
		return fmt.Errorf("the namespace has no annotation %s, which nsinit's policy sets when a namespace is created: its creator is unknown", v1alpha1.AnnotationCreatedBy)
	}
	return p.Populate(ctx, namespace, true)
}

// Populate applies to a closed namespace every manifest, and to an open one those that it is to
// follow, and removes what is no longer in its manifests.
func (p *Populator) Populate(ctx context.Context, namespace *corev1.Namespace, closed bool) error {
	populations, err := p.populations(ctx)
	if err != nil {
		return err
	}
	if closed && len(populations) == 0 {
		// Somebody registered the initializer for a reason. They may have been lost.
		return errors.New("there is no NamespacePopulation: create one, which may be empty, or take the initializer out of its configuration")
	}
	// gofail: var populationBeforeRecord struct{}
	record, err := p.record(ctx, namespace)
	if err != nil {
		return err
	}
	tasks := plan(record.Status.Objects, population.Render(populations, namespace), population.Keys(populations), closed)
	if record, err = p.announce(ctx, record, tasks); err != nil {
		return err
	}
	// gofail: var populationAfterAnnounce struct{}
	var objects []v1alpha1.PopulatedObject
	var failures []string
	for _, task := range tasks {
		entry, remains := p.do(ctx, namespace, task)
		if remains {
			objects = append(objects, entry)
		}
		if entry.State == v1alpha1.PopulatedObjectFailed && task.action != keep {
			failures = append(failures, failureOf(entry))
		}
	}
	if err := p.conclude(ctx, record, objects); err != nil {
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

// populations returns the populations in order. They are read live: one that was created before
// the namespace is never missed.
func (p *Populator) populations(ctx context.Context) ([]*population.Population, error) {
	list, err := p.client.NamespacePopulations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the NamespacePopulations: %w", err)
	}
	population.Sort(list.Items)
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[types.UID]compiled, len(list.Items))
	var populations []*population.Population
	var errs []error
	for _, item := range list.Items {
		c, ok := p.compiled[item.UID]
		if !ok || c.generation != item.Generation {
			result, compileErrs := population.Compile(item.Name, &item.Spec)
			c = compiled{item.Generation, result, compileErrs.ToAggregate()}
		}
		known[item.UID] = c
		if c.err != nil { // it was stored by a server that took it
			errs = append(errs, fmt.Errorf("NamespacePopulation %s is not valid: %w", item.Name, c.err))
		}
		populations = append(populations, c.population)
	}
	p.compiled = known
	return populations, errors.Join(errs...)
}

// record returns what is recorded of a namespace. The record of a former namespace of the same
// name is removed.
func (p *Populator) record(ctx context.Context, namespace *corev1.Namespace) (*v1alpha1.PopulatedNamespace, error) {
	records := p.client.PopulatedNamespaces()
	record, err := records.Get(ctx, namespace.Name, metav1.GetOptions{})
	if err == nil && record.Spec.NamespaceUID == namespace.UID {
		return record, nil
	}
	if err == nil {
		err = p.Forget(ctx, record)
	}
	if err != nil && !utilapierrors.IsAbsent(err) {
		return nil, fmt.Errorf("cannot read what was applied before: %w", err)
	}
	// gofail: var populationBeforeCreateRecord struct{}
	record, err = records.Create(ctx, &v1alpha1.PopulatedNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID},
		}},
		Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: namespace.UID},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot record what is applied: %w", err)
	}
	return record, nil
}

// Forget removes a record, and no other of its name.
func (p *Populator) Forget(ctx context.Context, record *v1alpha1.PopulatedNamespace) error {
	// gofail: var populationBeforeForget struct{}
	err := p.client.PopulatedNamespaces().Delete(ctx, record.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &record.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announce records objects that are about to be applied and are not recorded yet.
func (p *Populator) announce(ctx context.Context, record *v1alpha1.PopulatedNamespace, tasks []task) (*v1alpha1.PopulatedNamespace, error) {
	known := map[population.Identity]struct{}{}
	for _, entry := range record.Status.Objects {
		known[population.IdentityOf(entry)] = struct{}{}
	}
	var added []v1alpha1.PopulatedObject
	for _, task := range tasks {
		if _, recorded := known[population.IdentityOf(task.entry)]; task.action == apply && !recorded {
			added = append(added, task.entry)
		}
	}
	if len(added) == 0 {
		return record, nil
	}
	record = record.DeepCopy()
	record.Status.Objects = append(record.Status.Objects, added...)
	// gofail: var populationBeforeAnnounce struct{}
	record, err := p.client.PopulatedNamespaces().UpdateStatus(ctx, record, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot record what is applied: %w", err)
	}
	return record, nil
}

// do does what is to be done with one object. It returns what is recorded of it, and whether it
// is still there.
func (p *Populator) do(ctx context.Context, namespace *corev1.Namespace, t task) (v1alpha1.PopulatedObject, bool) {
	entry := t.entry
	failed := func(err error) (v1alpha1.PopulatedObject, bool) {
		entry.State, entry.Message = v1alpha1.PopulatedObjectFailed, strings.TrimSpace(err.Error())
		return entry, true
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
		return entry, false
	case apply:
		if t.object.DriftPolicy == v1alpha1.DriftRepair {
			p.follow(t.object.Content.GroupVersionKind())
		}
		// gofail: var populationBeforeApply struct{}
		applied, err := p.applier.Apply(ctx, namespace, t.object.Content)
		if err != nil {
			return failed(err)
		}
		entry.UID, entry.State, entry.Message = applied.GetUID(), v1alpha1.PopulatedObjectApplied, ""
		entry.LastAppliedTime = population.AppliedTime(applied, p.applier.FieldManager)
	}
	return entry, true
}

func failureOf(entry v1alpha1.PopulatedObject) string {
	return fmt.Sprintf("%s/%s: %s", entry.Population, entry.Manifest, entry.Message)
}

// conclude records what came of it, if that is new.
func (p *Populator) conclude(ctx context.Context, record *v1alpha1.PopulatedNamespace, objects []v1alpha1.PopulatedObject) error {
	updated := record.DeepCopy()
	updated.Status.Objects = objects
	condition := metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: reasonApplied, Message: fmt.Sprintf("objects: %d", len(objects))}
	if i := slices.IndexFunc(objects, func(o v1alpha1.PopulatedObject) bool { return o.State != v1alpha1.PopulatedObjectApplied }); i >= 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonFailed, failureOf(objects[i])
	}
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(record.Status, updated.Status) {
		return nil
	}
	// gofail: var populationBeforeConclude struct{}
	if _, err := p.client.PopulatedNamespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("cannot record what was applied: %w", err)
	}
	return nil
}
