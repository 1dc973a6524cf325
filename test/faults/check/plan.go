/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Plans judges the plan of every namespace: it is the merge of the configurations at one revision
// before it, and no change of a configuration is missing that was seen to be stored before the creation of the
// namespace began.
func Plans(v *View) []Violation {
	began := v.creations()
	states := v.configurationStates()
	var all []Violation
	for _, n := range v.Incarnations() {
		lifecycles := v.Lifecycles[n.UID]
		if len(lifecycles) == 0 || lifecycles[0][0].Initial {
			continue
		}
		first := lifecycles[0][0]
		start, known := began[n.UID]
		if message := judgePlan(first, states, start, known); message != "" {
			all = append(all, Violation{Check: "Plan", Namespace: n.Name, UID: n.UID, Revisions: []int64{first.Revision}, Message: message})
		}
	}
	return all
}

// configurationState is the content of the configurations from a revision on.
type configurationState struct {
	epoch    int
	revision int64
	// since is when it was known to be stored.
	since time.Duration
	plan  []entry
}

// entry holds the compared fields of a planned initializer.
type entry struct {
	Name      string
	Finalizer bool
	// Order is "after all before it", or "after" and the names that it waits for.
	Order string
}

// entryOf returns the compared fields of an initializer of a plan or of a configuration.
func entryOf(initializer *v1alpha1.RegisteredInitializer) entry {
	order := "after all before it"
	if initializer.Ordering != nil {
		order = fmt.Sprintf("after %q", initializer.Ordering.After)
	}
	return entry{Name: initializer.Name, Finalizer: initializer.Finalizer, Order: order}
}

// configurationStates returns every state of the configurations, in the order of the store. The first
// one is empty.
func (v *View) configurationStates() []configurationState {
	live := map[string]*v1alpha1.NamespaceInitializerConfiguration{}
	states := []configurationState{{}}
	epoch := 0
	for _, change := range v.Configurations {
		if change.Epoch != epoch {
			clear(live)
			epoch = change.Epoch
			states = append(states, configurationState{epoch: epoch})
		}
		live[change.Object.Name] = change.Object.Configuration
		if change.Deleted {
			delete(live, change.Object.Name)
		}
		since := change.Seen
		if change.Initial {
			since = 0
		}
		states = append(states, configurationState{epoch: epoch, revision: change.Revision, since: since, plan: merge(live)})
	}
	return states
}

// merge is the documented order: by the name of the configuration, the first entry of a name wins,
// configurations that are being deleted contribute nothing, nor do initializers whose activation waits for a report, and the built-in initializer comes
// first where a participant acts at termination.
func merge(live map[string]*v1alpha1.NamespaceInitializerConfiguration) []entry {
	var plan []entry
	participants := false
	for _, name := range sortedKeys(live) {
		if live[name].DeletionTimestamp != nil {
			continue
		}
		for _, initializer := range live[name].Initializers {
			if slices.ContainsFunc(plan, func(e entry) bool { return e.Name == initializer.Name }) || !helper.IsInPlans(live[name], &initializer) {
				continue
			}
			plan = append(plan, entryOf(&initializer))
			participants = participants || initializer.Finalizer
		}
	}
	if participants {
		plan = slices.Insert(plan, 0, entryOf(&v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}))
	}
	return plan
}

// creations returns when the creation of each object by a client began.
func (v *View) creations() map[types.UID]time.Duration {
	began := map[types.UID]time.Duration{}
	for _, o := range v.Operations {
		if o.Verb == "create" && o.Subresource == "" && o.Outcome == history.Acknowledged {
			began[o.UID] = o.Start
		}
	}
	return began
}

// judgePlan returns what is wrong with the plan of a lifecycle, or "".
func judgePlan(first history.Event, states []configurationState, start time.Duration, known bool) string {
	var plan []entry
	for _, planned := range first.Object.Lifecycle.Spec.Plan {
		plan = append(plan, entryOf(&planned.RegisteredInitializer))
	}
	var seen []configurationState
	for _, state := range states {
		if state.epoch == first.Epoch && state.revision < first.Revision {
			seen = append(seen, state)
		}
	}
	stale := ""
	for i, state := range slices.Backward(seen) {
		if !slices.Equal(state.plan, plan) {
			continue
		}
		if i+1 == len(seen) || !known || seen[i+1].since >= start {
			return ""
		}
		if stale == "" {
			stale = fmt.Sprintf("the plan %s is that of revision %d, which another one replaced at revision %d, %s before the creation of the namespace began",
				names(plan), state.revision, seen[i+1].revision, (start - seen[i+1].since).Round(time.Millisecond))
		}
	}
	if stale != "" {
		return stale
	}
	if len(seen) == 0 {
		return ""
	}
	return fmt.Sprintf("the plan %s is that of no revision of the configurations, the last one gives %s", names(plan), names(seen[len(seen)-1].plan))
}

func names(plan []entry) string {
	all := []string{}
	for _, e := range plan {
		all = append(all, e.Name+" "+e.Order)
	}
	return fmt.Sprintf("%q", all)
}
