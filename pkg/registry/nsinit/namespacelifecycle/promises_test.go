/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// forge changes a record in any way.
func (m *model) forge(r *nsinit.NamespaceLifecycle) {
	changes := forgeries(m.t, r)
	for range rapid.IntRange(0, 3).Draw(m.t, "changes") {
		changes[rapid.SampledFrom(names(changes)).Draw(m.t, "change")]()
	}
}

func names(changes map[string]func()) []string {
	var all []string
	for name := range changes {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func planned(name string) v1alpha1.PlannedInitializer {
	return v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: name}}
}

func forgeries(t *rapid.T, r *nsinit.NamespaceLifecycle) map[string]func() {
	setPending := func(names ...string) {
		if r.Spec.Initializers == nil {
			r.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		r.Spec.Initializers.Pending = nil
		for _, name := range names {
			r.Spec.Initializers.Pending = append(r.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
		}
	}
	pending := r.Pending()
	name := func() string { return rapid.SampledFrom(initializers()).Draw(t, "name") }
	without := func(removed ...string) []string {
		return slices.DeleteFunc(slices.Clone(pending), func(name string) bool { return slices.Contains(removed, name) })
	}
	some := func() []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(initializers()), 0, 3, rapid.ID).Draw(t, "some")
	}
	now := metav1.NowMicro()
	return map[string]func(){
		"remove one": func() { setPending(without(name())...) },
		"remove one and fail": func() {
			setPending(without(name())...)
			r.Spec.Initializers.Result = result("forged")
		},
		"skip some": func() {
			skipped := some()
			r.Spec.Skipped = append(r.Spec.Skipped, skipped...)
			setPending(without(skipped...)...)
		},
		"remove some":           func() { setPending(without(some()...)...) },
		"remove all":            func() { r.Spec.Initializers = nil },
		"wait for any":          func() { setPending(rapid.SliceOf(rapid.SampledFrom(initializers())).Draw(t, "pending")...) },
		"fail":                  func() { setPending(pending...); r.Spec.Initializers.Result = result(name()) },
		"say who failed":        func() { setPending(pending...); r.Spec.Initializers.FailedInitializer = name() },
		"do not say who failed": func() { setPending(pending...); r.Spec.Initializers.FailedInitializer = "" },
		"take the failure back": func() { setPending(pending...); r.Spec.Initializers.Result = nil },
		"begin turns now": func() {
			for i := range r.Status.Initializers {
				r.Status.Initializers[i].StartTime = &now
			}
		},
		"stall": func() {
			for i := range r.Status.Initializers {
				r.Status.Initializers[i].StalledTime = &now
			}
		},
		"order the plan": func() {
			for i := range r.Spec.Plan {
				r.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
			}
		},
		"skip any":                 func() { r.Spec.Skipped = append(r.Spec.Skipped, name()) },
		"unskip":                   func() { r.Spec.Skipped = nil },
		"drop the plan":            func() { r.Spec.Plan = nil },
		"plan one more":            func() { r.Spec.Plan = append(r.Spec.Plan, planned(name())) },
		"another namespaceUID":     func() { r.Spec.NamespaceUID = "forged" },
		"remove a finalizer":       func() { r.Spec.Finalizers = r.Spec.Finalizers[min(1, len(r.Spec.Finalizers)):] },
		"remove all finalizers":    func() { r.Spec.Finalizers = nil },
		"reverse the finalizers":   func() { slices.Reverse(r.Spec.Finalizers) },
		"add a finalizer":          func() { r.Spec.Finalizers = append(r.Spec.Finalizers, v1alpha1.FinalizerName(name())) },
		"say that it is Active":    func() { r.Status.Phase, r.Status.CurrentInitializers = v1alpha1.LifecycleActive, some() },
		"drop the status":          func() { r.Status = v1alpha1.NamespaceLifecycleStatus{} },
		"label":                    func() { metav1.SetMetaDataLabel(&r.ObjectMeta, "forged", name()) },
		"put a metadata finalizer": func() { r.Finalizers = []string{"example.com/other"} },
		"drop metadata finalizers": func() { r.Finalizers = nil },
		"undelete":                 func() { r.DeletionTimestamp = nil },
		"say that it is deleted":   func() { r.DeletionTimestamp = &metav1.Time{Time: now.Time} },
		"write a message": func() {
			for i := range r.Status.Initializers {
				if r.Status.Initializers[i].Name == name() {
					r.Status.Initializers[i].Message = "forged " + name()
				}
			}
		},
		"say that all are done": func() {
			for i := range r.Status.Initializers {
				r.Status.Initializers[i].State = v1alpha1.InitializerDone
			}
		},
		"write a condition": func() {
			r.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Forged", LastTransitionTime: metav1.Time(now)}}
		},
	}
}

func result(message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Message: message}
}

// transition is what a write to an endpoint did.
type transition struct {
	before, after *nsinit.NamespaceLifecycle
	endpoint      string
	user          string
	// deaf says that the authorizer did not answer.
	deaf bool
	err  error
}

// check checks a transition.
func (m *model) check(is transition) {
	before, after := is.before, is.after
	switch {
	case before == nil:
		if after != nil {
			m.t.Fatalf("a write to %q created a record", is.endpoint)
		}
		return
	case is.err != nil:
		if after == nil || after.ResourceVersion != before.ResourceVersion {
			m.t.Fatalf("a write was refused with %v, and changed the record", is.err)
		}
		return
	case after == nil:
		m.checkRemoval(is)
		return
	}
	for part, value := range partsOf(before) {
		if !slices.Contains(owns(is.endpoint), part) {
			if diff := cmp.Diff(value, partsOf(after)[part]); diff != "" {
				m.t.Fatalf("a write to %q changed %s (-before +after):\n%s", is.endpoint, part, diff)
			}
		}
	}
	switch is.endpoint {
	case "initialize":
		m.checkInitialize(is)
	case "finalize", "POST finalize":
		m.checkFinalize(is)
	case "status":
		m.checkMessages(is)
	}
	m.checkStatus(after)
}

// partsOf are what endpoints own.
func partsOf(r *nsinit.NamespaceLifecycle) map[string]any {
	return map[string]any{
		"identity":     []any{r.Name, r.UID, r.CreationTimestamp, r.DeletionTimestamp, r.Spec.NamespaceUID},
		"metadata":     []any{r.Labels, r.Annotations, r.Finalizers},
		"plan":         r.Spec.Plan,
		"initializers": r.Spec.Initializers,
		"skipped":      r.Spec.Skipped,
		"finalizers":   r.Spec.Finalizers,
		"status":       r.Status,
	}
}

func owns(endpoint string) []string {
	switch endpoint {
	case "initialize":
		return []string{"initializers", "skipped", "status"}
	case "finalize", "POST finalize":
		return []string{"finalizers", "status"}
	case "status":
		return []string{"status"}
	}
	return []string{"metadata"}
}

// checkRemoval: a write removes a record from storage if it was deleted and the last one who
// held it released it.
func (m *model) checkRemoval(is transition) {
	released := len(is.before.Finalizers) == 0 && (len(is.before.Spec.Finalizers) == 0 || strings.HasSuffix(is.endpoint, "finalize")) ||
		is.endpoint == "" && len(is.before.Spec.Finalizers) == 0
	if is.before.DeletionTimestamp == nil || !released {
		m.t.Fatalf("a write to %q removed the record: %+v", is.endpoint, is.before)
	}
	m.checkOwners(is, nil)
}

// checkInitialize: entries are removed once none that they wait for is pending, each by itself or skipped by a user with
// the verb open; an empty list and a failure are final.
func (m *model) checkInitialize(is transition) {
	before, after := is.before.Pending(), is.after.Pending()
	gone := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
	if !slices.Equal(after, slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(gone, name) })) {
		m.t.Fatalf("pending was %v and became %v", before, after)
	}
	for _, name := range gone {
		skipped := is.user == privileged && slices.Contains(is.after.Spec.Skipped, name) && !slices.Contains(is.before.Spec.Skipped, name)
		if is.deaf || is.user != name && !skipped {
			m.t.Fatalf("%q removed %q", is.user, name)
		}
		if waits := waitsFor(is.before.Spec.Plan, name, after); len(waits) > 0 {
			m.t.Fatalf("%q was removed while it waited for %q", name, waits)
		}
	}
	if n := len(is.before.Spec.Skipped); n > len(is.after.Spec.Skipped) || !slices.Equal(is.before.Spec.Skipped, is.after.Spec.Skipped[:n]) {
		m.t.Fatalf("skipped was %q and became %q", is.before.Spec.Skipped, is.after.Spec.Skipped)
	}
	for _, name := range is.after.Spec.Skipped[len(is.before.Spec.Skipped):] {
		if !slices.Contains(gone, name) {
			m.t.Fatalf("%q was skipped, and what left is %v", name, gone)
		}
	}
	was, now := failureOf(is.before), failureOf(is.after)
	switch {
	case was != nil && (!equality.Semantic.DeepEqual(is.before.Spec.Initializers, is.after.Spec.Initializers) || len(gone) > 0):
		m.t.Fatalf("the initialization had failed with %+v, and became %+v", is.before.Spec.Initializers, is.after.Spec.Initializers)
	case was == nil && now != nil:
		failed := is.after.Spec.Initializers.FailedInitializer
		if is.deaf || len(gone) > 0 || is.user != privileged && is.user != failed || !slices.Contains(turns(is.before), failed) {
			m.t.Fatalf("%q failed %q of %v", is.user, failed, turns(is.before))
		}
	}
	m.checkTurns(is)
}

// waitsFor returns which of the pending entries of a plan another one waits for.
func waitsFor(plan []v1alpha1.PlannedInitializer, name string, pending []string) (names []string) {
	i := slices.IndexFunc(plan, func(p v1alpha1.PlannedInitializer) bool { return p.Name == name })
	for j, other := range plan {
		before := j < i
		if ordering := plan[i].Ordering; ordering != nil {
			before = slices.Contains(ordering.After, other.Name)
		}
		if before && slices.Contains(pending, other.Name) {
			names = append(names, other.Name)
		}
	}
	return names
}

// turns returns the pending entries that wait for none.
func turns(r *nsinit.NamespaceLifecycle) (names []string) {
	pending := r.Pending()
	for _, name := range pending {
		if len(waitsFor(r.Spec.Plan, name, pending)) == 0 {
			names = append(names, name)
		}
	}
	return names
}

func failureOf(r *nsinit.NamespaceLifecycle) *metav1.Status {
	if r.Spec.Initializers == nil {
		return nil
	}
	return r.Spec.Initializers.Result
}

// checkTurns: a turn begins when the last one that it waits for is removed, and not again. None begins after the deletion.
func (m *model) checkTurns(is transition) {
	before, after := turns(is.before), turns(is.after)
	for _, pending := range is.after.Pending() {
		began := is.after.Entry(pending).StartTime
		switch {
		case !slices.Contains(after, pending):
			if began != nil {
				m.t.Fatalf("the turn of %q began at %s, and it is the turn of %q", pending, began, after)
			}
		case slices.Contains(before, pending):
			if was := is.before.Entry(pending).StartTime; !began.Equal(was) {
				m.t.Fatalf("the turn of %q began at %s, and then at %s", pending, was, began)
			}
		case is.after.DeletionTimestamp != nil:
			if began != nil {
				m.t.Fatalf("the turn of %q began at %s, after the deletion", pending, began)
			}
		case !began.Time.Equal(m.clock.Now()):
			m.t.Fatalf("at %s, the turn of %q is said to have begun at %s", m.clock.Now(), pending, began)
		}
	}
}

// checkFinalize: what stays keeps its order, and names are added by the privileged only.
func (m *model) checkFinalize(is transition) {
	m.checkOwners(is, is.after.Spec.Finalizers)
	var kept []v1alpha1.FinalizerName
	for _, name := range is.after.Spec.Finalizers {
		if slices.Contains(is.before.Spec.Finalizers, name) {
			kept = append(kept, name)
		} else if is.deaf || is.user != privileged {
			m.t.Fatalf("%q added %q", is.user, name)
		}
	}
	want := slices.DeleteFunc(slices.Clone(is.before.Spec.Finalizers), func(f v1alpha1.FinalizerName) bool { return !slices.Contains(kept, f) })
	if !slices.Equal(want, kept) {
		m.t.Fatalf("the order was %q and became %q", is.before.Spec.Finalizers, is.after.Spec.Finalizers)
	}
	// Of the status, only who released the terminating record changes, and what the conditions say.
	status := is.before.Status.DeepCopy()
	for i := range status.Initializers {
		name := v1alpha1.FinalizerName(status.Initializers[i].Name)
		if is.after.DeletionTimestamp != nil && slices.Contains(is.before.Spec.Finalizers, name) && !slices.Contains(kept, name) {
			status.Initializers[i].LastActor, status.Initializers[i].StalledTime = is.user, nil
		}
	}
	if is.after.DeletionTimestamp != nil {
		status.Conditions = is.after.Status.Conditions
	}
	if diff := cmp.Diff(*status, is.after.Status); diff != "" {
		m.t.Fatalf("a write to %q changed the status (-want +got):\n%s", is.endpoint, diff)
	}
}

// checkOwners: each participant removes its own name.
func (m *model) checkOwners(is transition, after []v1alpha1.FinalizerName) {
	for _, name := range is.before.Spec.Finalizers {
		owner := string(name)
		if name == v1alpha1.FinalizerKubernetes {
			owner = privileged
		}
		if !slices.Contains(after, name) && (is.deaf || is.user != owner) {
			m.t.Fatalf("%q removed %q", is.user, name)
		}
	}
}

// checkMessages: an initializer writes its own message, and only the privileged user marks stalled turns and writes conditions.
// Those that the server derives contain the message.
func (m *model) checkMessages(is transition) {
	before, after := is.before.Status.DeepCopy(), is.after.Status.DeepCopy()
	for _, status := range []*v1alpha1.NamespaceLifecycleStatus{before, after} {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionInitializing)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionReady)
	}
	if !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) && (is.deaf || is.user != privileged) {
		m.t.Fatalf("%q wrote conditions", is.user)
	}
	before.Conditions, after.Conditions = nil, nil
	for i := range before.Initializers {
		was, now := &before.Initializers[i], &after.Initializers[i]
		if now.StalledTime != nil && !is.deaf && is.user == privileged {
			was.StalledTime = now.StalledTime
		}
		if was.Message == now.Message {
			continue
		}
		if is.deaf || is.user != now.Name || now.LastActor != is.user {
			m.t.Fatalf("%q wrote the message of %+v", is.user, now)
		}
		was.Message, was.LastActor = now.Message, now.LastActor
	}
	if diff := cmp.Diff(before, after); diff != "" {
		m.t.Fatalf("a write to the status changed what the server derives (-before +after):\n%s", diff)
	}
}

// checkStatus: the status says what follows from the spec.
func (m *model) checkStatus(r *nsinit.NamespaceLifecycle) {
	pending, phase := r.Pending(), v1alpha1.LifecycleActive
	var current []string
	switch {
	case r.DeletionTimestamp != nil:
		phase = v1alpha1.LifecycleTerminating
	case len(pending) > 0:
		phase = v1alpha1.LifecycleInitializing
		if failureOf(r) == nil {
			current = turns(r)
		}
	}
	if r.Status.Phase != phase || !slices.Equal(r.Status.CurrentInitializers, current) || len(r.Status.Initializers) != len(r.Spec.Plan) {
		m.t.Fatalf("the spec is %+v, and the status %+v", r.Spec, r.Status)
	}
	for i, entry := range r.Status.Initializers {
		if r.DeletionTimestamp != nil && entry.StartTime == nil {
			continue // the status of one that had no turn before the deletion stays as it is
		}
		waits := slices.Contains(pending, entry.Name)
		done := entry.State == v1alpha1.InitializerDone || entry.State == v1alpha1.InitializerSkipped
		acts := entry.State == v1alpha1.InitializerRunning || entry.State == v1alpha1.InitializerFailed
		if entry.Name != r.Spec.Plan[i].Name || waits == done ||
			(entry.State == v1alpha1.InitializerSkipped) != slices.Contains(r.Spec.Skipped, entry.Name) ||
			acts != slices.Contains(turns(r), entry.Name) {
			m.t.Fatalf("the spec is %+v, and the status says %+v", r.Spec, entry)
		}
		asked := slices.Contains(current, entry.Name) || r.DeletionTimestamp != nil && slices.Contains(r.Participants(), entry.Name)
		if entry.StalledTime != nil && !asked {
			m.t.Fatalf("it is the turn of %q, and the status says %+v", current, entry)
		}
	}
}
