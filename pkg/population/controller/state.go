/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const (
	// atOnce is how many namespaces are checked or get objects at the same time.
	atOnce = 4
	// batchSize is how many namespaces are checked or get objects before all of them are counted again. A rollout begins with one.
	batchSize = 20
	// tooMany is the number of namespaces that refuse objects at which a rollout pauses, see rollout.limit.
	tooMany = 3
	// retryRefused is how soon namespaces that refused objects are tried again: permissions and policies are not watched.
	retryRefused = time.Minute
	// recheck is how soon old conflicts and reports are checked again: most objects of namespaces are not watched.
	recheck = 10 * time.Minute
)

// view is what is known about a namespace.
type view struct {
	// of is the population.
	of *population.Population
	// source is the namespace, as it was rendered.
	source *metav1.PartialObjectMetadata
	// wanted are its objects without their content, of which digest is a hash.
	wanted []population.Object
	digest [sha256.Size]byte
	// results are the outcomes of the last check. They are nil before the first one.
	results map[population.Target]population.Result
	// checked is when the last check ended, and stuck when the first of the last checks ended that all had conflicts.
	checked, stuck time.Time
	// err is why the check since then could not be made, failing when this began, and retry when it is made again.
	err            error
	failing, retry time.Time
	// counted are the outcomes, counted with an inventory. It is nil if they must be counted again.
	counted   *tally
	inventory *v1alpha1.PopulatedNamespace
}

// newView renders a population for a namespace.
func newView(of *population.Population, source *metav1.PartialObjectMetadata) *view {
	v, hash := &view{of: of, source: source}, sha256.New()
	for _, object := range population.Render([]*population.Population{of}, namespaceOf(source)) {
		_, _ = fmt.Fprintf(hash, "%q %v ", object.Manifest, object.Err)
		_ = json.NewEncoder(hash).Encode(object.Content) // rendered from JSON
		object.Content = nil
		v.wanted = append(v.wanted, object)
	}
	hash.Sum(v.digest[:0])
	return v
}

// namespaceOf returns the part of a namespace that populations read.
func namespaceOf(source *metav1.PartialObjectMetadata) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: source.ObjectMeta}
}

// set stores the outcomes of a check, or why there are none.
func (v *view) set(results []population.Result, err error, now time.Time) {
	v.counted = nil
	if err != nil {
		if v.err == nil {
			v.failing = now
		}
		v.err, v.retry = err, now.Add(min(max(now.Sub(v.failing), minRolloutRetry), maxRolloutRetry))
		return
	}
	v.results, v.checked, v.err = map[population.Target]population.Result{}, now, nil
	for _, result := range results {
		v.results[result.Target] = result
	}
	if !slices.ContainsFunc(results, func(result population.Result) bool { return result.Outcome == population.Conflict }) {
		v.stuck = time.Time{}
	} else if v.stuck.IsZero() {
		v.stuck = now
	}
}

// tally is the outcomes of the manifests in one namespace.
type tally struct {
	view *view
	// counts are the numbers of manifests and obsolete objects by their outcome, and unknown is that of the others.
	counts  map[population.Outcome]int32
	unknown int32
	// recorded is the number of objects that the inventory has as their manifests are now, and unrepaired that of those whose
	// drift cannot be repaired.
	recorded, unrepaired int
	// obsolete is the number of objects that are still to be deleted.
	obsolete int
	// problems are the conflicts and refusals.
	problems []population.Result
}

// tally returns the outcomes in a namespace. It counts again only after a check or a change of the inventory.
func (v *view) tally(inventory *v1alpha1.PopulatedNamespace, apply bool) tally {
	if v.counted == nil || v.inventory != inventory {
		counted := v.count(inventory.Status.Objects, apply)
		v.counted, v.inventory = &counted, inventory
		if counted.isRecorded() { // they need memory, and the inventory has them, except for those of deletions
			maps.DeleteFunc(v.results, func(target population.Target, _ population.Result) bool {
				return target.Deletes == population.Identity{}
			})
			if len(v.results) == 0 {
				v.results = nil
			}
		}
	}
	return *v.counted
}

// count counts the outcomes in a namespace. An object that its inventory has as the manifest is now is unchanged. A rollout also
// reads from the inventory which objects an earlier process could not apply or delete.
func (v *view) count(inventory []v1alpha1.PopulatedObject, apply bool) tally {
	t := tally{view: v, counts: map[population.Outcome]int32{}}
	for _, task := range population.Plan(population.RollOut, v.of.Name, []*population.Population{v.of}, v.wanted, inventory) {
		target := task.Target()
		if target == (population.Target{}) {
			continue
		}
		result, known := v.results[target]
		recorded, isCurrent := recordedOf(target, task.Entry), task.Action == population.Keep && !task.Obsolete
		if isCurrent || !known && apply && recorded.Outcome != population.Unchanged {
			result, known = recorded, true
		}
		if isCurrent {
			t.recorded++
		}
		if isCurrent && recorded.Outcome == population.Refused {
			t.unrepaired++
		}
		switch {
		case !known:
			t.unknown++
		case task.Obsolete && (result.Outcome == population.Unchanged || apply && result.Outcome == population.Deleted):
			continue // another manifest is to get the object, or it was deleted since the last check
		case apply && (result.Outcome == population.Created || result.Outcome == population.Configured):
			t.counts[population.Unchanged]++ // since the last check
		default:
			t.add(result)
		}
		if task.Obsolete {
			t.obsolete++
		}
	}
	return t
}

// recordedOf returns the outcome that an entry of an inventory records.
func recordedOf(target population.Target, entry v1alpha1.PopulatedObject) population.Result {
	result := population.Result{Target: target, Outcome: population.Unchanged}
	switch entry.State {
	case v1alpha1.PopulatedObjectConflict:
		result.Outcome, result.Message = population.Conflict, entry.Message
	case v1alpha1.PopulatedObjectFailed:
		result.Outcome, result.Message = population.Refused, entry.Message
	case v1alpha1.PopulatedObjectApplied, v1alpha1.PopulatedObjectPending:
	}
	return result
}

// add counts an outcome.
func (t *tally) add(result population.Result) {
	t.counts[result.Outcome]++
	if result.Outcome == population.Conflict || result.Outcome == population.Refused {
		t.problems = append(t.problems, result)
	}
}

// isCurrent reports whether the namespace has received every object and change.
func (t tally) isCurrent() bool {
	return t.unknown == 0 && t.obsolete == 0 && t.counts[population.Unchanged] == int32(len(t.view.wanted))
}

// isRecorded reports whether the inventory has every object as its manifest is now, and nothing to delete.
func (t tally) isRecorded() bool { return t.recorded == len(t.view.wanted) && t.obsolete == 0 }

// refuses reports whether the namespace refused objects of the rollout.
func (t tally) refuses() bool { return int(t.counts[population.Refused]) > t.unrepaired }

// isNew reports whether the rollout has not reached the namespace yet: it refuses nothing.
func (t tally) isNew() bool { return t.unknown > 0 && !t.refuses() }

// refusing counts the namespaces that refuse objects.
func refusing(tallies []tally) (count int) {
	for _, t := range tallies {
		if t.refuses() {
			count++
		}
	}
	return count
}

// readySince returns when a missing permission or kind was last added, or zero if one is missing.
func readySince(p *v1alpha1.NamespacePopulation) time.Time {
	if ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionTrue {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

// due returns when the namespace is checked again, and whether it ever is. Problems from before asked are checked now. A conflict is
// checked after a minute, then each time after it has lasted twice as long, up to recheck.
func (t tally) due(apply bool, asked time.Time) (time.Time, bool) {
	switch {
	case t.isRecorded():
		return time.Time{}, false
	case t.view.err != nil:
		return t.view.retry, true
	case t.unknown > 0:
		return time.Time{}, true
	}
	after := recheck
	if apply && t.refuses() {
		after = retryRefused
	} else if apply {
		after = min(max(t.view.checked.Sub(t.view.stuck), retryRefused), recheck)
	}
	next := t.view.checked.Add(after)
	if len(t.problems) > 0 && t.view.checked.Before(asked) && asked.Before(next) { // the clock by which they asked can be ahead
		next = asked
	}
	return next, true
}

// next returns the namespaces to check now, and when to look for others if there are none. A rollout pauses while as many namespaces
// as the limit refuse objects. Those whose last check had an error are the last ones, so that others do not wait for them.
func next(tallies []tally, limit int, apply bool, asked, now time.Time) (batch []tally, wait time.Duration) {
	var again, waiting, failing []tally
	wait = recheck
	current, paused := 0, apply && refusing(tallies) >= limit
	for _, t := range tallies {
		if t.isCurrent() && !t.view.checked.IsZero() { // one in which nothing was done shows nothing
			current++
		}
		if t.unrepaired > 0 {
			wait = min(wait, retryRefused) // another controller repairs them
		}
		isNew := t.isNew()
		due, ever := t.due(apply, asked)
		switch {
		case !ever, isNew && paused:
		case due.After(now):
			wait = min(wait, due.Sub(now))
		case t.view.err != nil:
			failing = append(failing, t)
		case isNew:
			waiting = append(waiting, t)
		default:
			again = append(again, t)
		}
	}
	slices.SortStableFunc(failing, func(a, b tally) int { return a.view.retry.Compare(b.view.retry) })
	if !apply {
		batch = slices.Concat(waiting, again, failing)
		return batch[:min(batchSize, len(batch))], wait
	}
	switch {
	case len(again) == 0:
		batch = slices.Concat(waiting, failing)
	case len(waiting) == 0: // also while the rollout is paused
		batch = again
	default: // in turn: the namespaces that refuse objects can be many of one tenant
		for i := range batchSize {
			for _, list := range [][]tally{waiting, again} {
				if i < len(list) {
					batch = append(batch, list[i])
				}
			}
		}
	}
	return batch[:min(batchSize, max(1, current), len(batch))], wait
}
