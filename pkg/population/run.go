/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// atOnce is how many objects of a namespace are applied at the same time.
const atOnce = 8

// doubtful is the time after which a process may have been paused, so that a namespace which it has read may be gone.
const doubtful = 10 * time.Second

// maxMessage is the length, in bytes, at which the message of an object is cut.
const maxMessage = 1024

// Result is the outcome of a manifest or deletion in a namespace.
type Result struct {
	Target
	Outcome Outcome
	// Message is why the outcome is Conflict or Refused.
	Message string
}

// result is what a task has done. The task has the new entry.
type result struct {
	Task
	outcome Outcome
	err     error
	// stored is what was applied. It is nil after an error, and if nothing was.
	stored *unstructured.Unstructured
}

// Report returns what would become of objects in a namespace, in their order, and then of those without a manifest. The Applier must
// have DryRun. mode and of are those of a plan. An error means that some results, which are Refused, are temporary.
func (a *Applier) Report(ctx context.Context, namespace *corev1.Namespace, mode Mode, of string, populations []*Population,
	wanted []Object, inventory []v1alpha1.PopulatedObject,
) ([]Result, error) {
	return outcomesOf(a.run(ctx, namespace, mode, time.Now(), Plan(mode, of, populations, wanted, inventory), existing(inventory, populations)))
}

// existing returns the objects in an inventory that belong to a manifest.
func existing(inventory []v1alpha1.PopulatedObject, populations []*Population) []v1alpha1.PopulatedObject {
	return slices.DeleteFunc(slices.Clone(inventory), func(entry v1alpha1.PopulatedObject) bool {
		p := find(populations, entry.Population)
		return p == nil || !p.has(entry.Manifest)
	})
}

// outcomesOf returns the outcome of each manifest and deletion, and the last error that is temporary.
func outcomesOf(results []result) (outcomes []Result, temporary error) {
	for _, r := range results {
		outcome := Result{Target: r.Target(), Outcome: r.outcome}
		if r.err != nil {
			outcome.Message = messageOf(r.err)
		}
		if IsTemporary(r.err) {
			temporary = r.err
		}
		if outcome.Target != (Target{}) {
			outcomes = append(outcomes, outcome)
		}
	}
	return outcomes, temporary
}

// messageOf returns an error as inventories and previews have it: Kubernetes' errors can quote a whole object.
func messageOf(err error) string {
	return printable.Shorten(strings.TrimSpace(printable.Lines(err.Error())), maxMessage)
}

// run runs the tasks of a plan. A rollout goes object by object, and continues only while the namespace may be changed. An object of
// an open namespace stays while the one that its manifest has now cannot be applied. read is when the namespace was read, and
// inventory has the entries of manifests that exist.
func (a *Applier) run(ctx context.Context, namespace *corev1.Namespace, mode Mode, read time.Time, tasks []Task, inventory []v1alpha1.PopulatedObject) []result {
	results := make([]result, len(tasks))
	may := func(t Task) error {
		switch {
		case t.Action != Apply && t.Action != Adopt && t.Action != Prune:
			return nil
		case mode == RollOut:
			return a.Await(ctx, namespace)
		case !a.DryRun && time.Since(read) > doubtful:
			_, err := a.reread(ctx, namespace)
			return err
		}
		return nil
	}
	if mode != RollOut {
		a.applyTogether(ctx, namespace, may, tasks, results)
	}
	failed, hasChanged := sets.New[Key](), false
	for i, t := range tasks {
		if results[i].outcome != "" && results[i].err == nil {
			continue
		}
		if t.Action == Prune && failed.Has(KeyOf(t.Entry)) || hasChanged {
			t.Action = Keep
		}
		r := result{Task: t, outcome: Refused, err: may(t)}
		if r.err == nil {
			r = a.do(ctx, namespace, t, inventory)
		} else if mode != RollOut {
			r.Entry.State, r.Entry.Message = v1alpha1.PopulatedObjectFailed, messageOf(r.err)
		}
		if r.err != nil {
			if mode != Initialize && t.Action != Prune { // a closed namespace needs no object, and the next one may need that it is deleted
				failed.Insert(KeyOf(t.Entry))
			}
			hasChanged = hasChanged || errors.Is(r.err, ErrChanged)
		}
		results[i] = r
	}
	return results
}

// applyTogether applies objects at the same time. What fails is left to do, in order: an object can need an earlier one, and of two
// manifests of one object the later one counts.
func (a *Applier) applyTogether(ctx context.Context, namespace *corev1.Namespace, may func(Task) error, tasks []Task, results []result) {
	count := map[Identity]int{}
	for _, t := range tasks {
		count[IdentityOf(t.Entry)]++
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, t := range tasks {
		if t.Action == Apply && count[IdentityOf(t.Entry)] == 1 {
			group.Go(func() error {
				if may(t) == nil {
					results[i] = a.do(ctx, namespace, t, nil)
				}
				return nil
			})
		}
	}
	_ = group.Wait() // the results have the errors
}

// do runs a task. After an error, the outcome is Conflict or Refused, and the entry has the error.
func (a *Applier) do(ctx context.Context, namespace *corev1.Namespace, t Task, inventory []v1alpha1.PopulatedObject) result {
	r := result{Task: t, outcome: Unchanged}
	switch t.Action {
	case Keep:
		return r
	case ReportError:
		r.outcome, r.err = Refused, t.Object.Err
	case Prune:
		if r.outcome = Deleted; a.DryRun {
			return r
		}
		// gofail: var populationBeforePrune struct{}
		if isMetadata(t.Entry) {
			r.err = a.undecorate(ctx, namespace, t.Entry)
		} else {
			r.err = a.Prune(ctx, namespace, t.Entry)
		}
		if r.err == nil {
			klog.FromContext(ctx).Info("Pruned", "population", t.Entry.Population, "manifest", t.Entry.Manifest, "kind", t.Entry.Kind, "object", t.Entry.Name)
			return r
		}
		r.outcome = Refused
	case Apply, Adopt:
		var replaceable types.UID
		if t.Object.DriftPolicy == v1alpha1.DriftRepair {
			replaceable = t.Entry.UID
		}
		// gofail: var populationBeforeApply struct{}
		switch {
		case isMetadata(t.Entry):
			r.stored, r.outcome, r.err = a.decorate(ctx, namespace, t.Entry.Population, t.Object.Content, t.Action == Apply)
		case t.Action == Apply:
			r.stored, r.outcome, r.err = a.reapply(ctx, namespace, t.Object.Content, replaceable)
		default:
			r.stored, r.outcome, r.err = a.Adopt(ctx, namespace, t.Object.Content, inventory)
		}
	}
	switch entry := &r.Entry; {
	case r.err == nil:
		entry.UID, entry.State, entry.Message, entry.ContentHash = r.stored.GetUID(), v1alpha1.PopulatedObjectApplied, "", t.Object.Hash
		entry.LastAppliedTime = appliedTime(r.stored, a.FieldManager)
		return r
	case t.Action == Adopt && IsTemporary(r.err):
		entry.State = v1alpha1.PopulatedObjectPending
	case r.outcome == Conflict:
		entry.State = v1alpha1.PopulatedObjectConflict
	default:
		entry.State = v1alpha1.PopulatedObjectFailed
	}
	r.Entry.Message = messageOf(r.err)
	return r
}

// reapply applies a content with Repair. With DryRun, it also compares the result with what is stored.
func (a *Applier) reapply(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured, applied types.UID) (
	*unstructured.Unstructured, Outcome, error,
) {
	var live *unstructured.Unstructured
	if a.DryRun {
		if client, err := a.resource(content.GroupVersionKind(), namespace.Name); err == nil {
			live, _ = client.find(ctx, content.GetName()) // Repair reports the error
		}
	}
	stored, err := a.Repair(ctx, namespace, content, applied)
	switch {
	case err != nil:
		return nil, Refused, err
	case a.DryRun && live == nil:
		return stored, Created, nil
	case a.DryRun && sameContent(live, stored):
		return stored, Unchanged, nil
	}
	return stored, Configured, nil
}

// written returns the objects that were changed. The time of the last change is in the entry of a task, and then in that of its result.
func written(tasks []Task, results []result) (objects []metav1.Object) {
	for i, r := range results {
		isChanged := r.stored != nil && r.outcome != Unchanged && !r.Entry.LastAppliedTime.Equal(tasks[i].Entry.LastAppliedTime)
		if isChanged && !isMetadata(r.Entry) {
			objects = append(objects, r.stored)
		}
	}
	return objects
}
