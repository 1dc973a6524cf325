/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/faults/history"
)

// searchLimit bounds the search for a linearization of the operations on one object. There is one
// order of its versions, so a search takes milliseconds.
const searchLimit = 10 * time.Second

// Linearizable judges, for each UID of a lifecycle or a configuration, whether the acknowledged writes
// and reads, in real time, fit the order of the store, and whether each change is one that the
// API allows. An object that a snapshot restored has another life.
func Linearizable(v *View) []Violation {
	type life struct {
		uid   types.UID
		epoch int
	}
	operations := map[life][]history.Operation{}
	for _, o := range v.Operations {
		epoch := v.epochAt(o.Start)
		if o.Group == group && o.Outcome == history.Acknowledged && o.ResourceVersion != 0 && v.epochAt(o.End) == epoch {
			operations[life{o.UID, epoch}] = append(operations[life{o.UID, epoch}], o)
		}
	}
	var all []Violation
	for _, uid := range sortedKeys(v.Records) {
		versions := v.Records[uid]
		if versions[0].Object.Lifecycle == nil && versions[0].Object.Configuration == nil {
			continue
		}
		all = append(all, transitions(versions)...)
		for len(versions) > 0 {
			epoch := versions[0].Epoch
			end := slices.IndexFunc(versions, func(e history.Event) bool { return e.Epoch != epoch })
			if end < 0 {
				end = len(versions)
			}
			all = append(all, linearizable(versions[:end], operations[life{uid, epoch}])...)
			versions = versions[end:]
		}
	}
	return slices.Concat(all, v.revived(), v.forbidden())
}

// revived finds operations that saw a version which was lost when the storage was replaced.
func (v *View) revived() []Violation {
	var all []Violation
	for _, o := range v.Operations {
		epoch := v.epochAt(o.Start)
		if o.Group != group || o.Outcome != history.Acknowledged || epoch == 0 {
			continue
		}
		versions := slices.DeleteFunc(slices.Clone(v.Records[o.UID]), func(e history.Event) bool { return e.Revision != o.ResourceVersion })
		if len(versions) > 0 && !slices.ContainsFunc(versions, func(e history.Event) bool { return e.Epoch >= epoch }) {
			all = append(all, violation(versions, o.ID, "%s by %q saw a version that was lost when the storage was replaced", o.Verb, o.Client))
		}
	}
	return all
}

// forbidden finds acknowledged writes of NamespaceLifecycles that the API never allows.
func (v *View) forbidden() []Violation {
	var all []Violation
	for _, o := range v.Operations {
		if o.Role == history.RoleMeddler && o.Outcome == history.Acknowledged && o.Resource == "namespacelifecycles" {
			all = append(all, Violation{Check: "Linearizable", Namespace: o.Name, UID: o.UID, Revisions: []int64{o.ResourceVersion}, Operation: o.ID,
				Message: "a write that is never allowed was acknowledged: " + string(o.Request)})
		}
	}
	return all
}

// step is an operation on the versions of one object, which are numbered from 1. 0 is its absence.
type step struct {
	// writes is the version that the operation made, or 0.
	writes int
	// sees is the version in its answer, or 0.
	sees int
	// base is the version that a write was based on, or -1 where it names none.
	base int
	text string
}

// model is an object with one version after the other. A write creates the next version, and only on
// the version that it names. A response contains the version of its moment.
func model(initial int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			s, version := input.(step), state.(int)
			if s.writes != 0 {
				return version == s.writes-1 && (s.base < 0 || s.base == version), s.writes
			}
			return version == s.sees && (s.base < 0 || s.base == version), version
		},
		DescribeOperation: func(input, _ any) string { return input.(step).text },
	}
}

// linearizable searches an order of the operations on one object.
func linearizable(versions []history.Event, operations []history.Operation) []Violation {
	number := map[int64]int{}
	for i, version := range versions {
		if !version.Deleted {
			number[version.Revision] = i + 1
		}
	}
	initial := 0
	if versions[0].Initial {
		initial = 1
	}
	var all []Violation
	var ops []porcupine.Operation
	authors := map[int]history.Operation{}
	for _, o := range operations {
		sees, known := number[o.ResourceVersion]
		if !known {
			continue // a removal answers with a version that is not stored; others are judged by I3
		}
		s := step{sees: sees, base: base(o, number), text: fmt.Sprintf("operation %d (%s/%s) sees version %d", o.ID, o.Verb, o.Subresource, sees)}
		end := o.End
		if author(o, s, versions) && sees > initial {
			if other, taken := authors[sees]; taken {
				all = append(all, violation(versions, o.ID, "operations %d and %d were both acknowledged as the author of one version", other.ID, o.ID))
				continue
			}
			authors[sees] = o
			s.writes, s.sees = sees, 0
			end = min(end, versions[sees-1].Seen)
		}
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: s, Call: int64(o.Start), Return: int64(max(end, o.Start))})
	}
	for i, version := range versions {
		if _, known := authors[i+1]; !known && i+1 > initial {
			ops = append(ops, porcupine.Operation{
				ClientId: len(ops), Input: step{writes: i + 1, base: -1, text: fmt.Sprintf("an unknown client writes version %d", i+1)}, Return: int64(version.Seen),
			})
		}
	}
	if porcupine.CheckOperationsTimeout(model(initial), ops, searchLimit) == porcupine.Ok {
		return all
	}
	return append(all, violation(versions, 0, "no order of its %d versions and %d acknowledged operations fits their times", len(versions), len(operations)))
}

// base returns the number of the version that a write names, -1 if it names none, and 0 if it names
// one that never existed.
func base(o history.Operation, number map[int64]int) int {
	if o.Verb != "update" {
		return -1
	}
	var request struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Request, &request) != nil || request.Metadata.ResourceVersion == "" {
		return -1
	}
	revision, _ := strconv.ParseInt(request.Metadata.ResourceVersion, 10, 64)
	return number[revision]
}

// author reports whether an operation is known to have written the version in its answer: one that was
// based on the version before it, or on none that ever was, which no order will explain. One that
// changed nothing answers with the version that it was based on.
func author(o history.Operation, s step, versions []history.Event) bool {
	switch o.Verb {
	case "create":
		return versions[s.sees-1].Created
	case "update":
		return s.base >= 0 && s.base != s.sees
	}
	return false
}

func violation(versions []history.Event, operation int64, format string, args ...any) Violation {
	object := versions[0].Object
	return Violation{Check: "Linearizable", Namespace: object.Name, UID: object.UID, Revisions: revisionsOf(versions), Operation: operation,
		Message: fmt.Sprintf("%s %q: ", object.Kind, object.Name) + fmt.Sprintf(format, args...)}
}

// transitions judges each change of an object by what the API allows.
func transitions(versions []history.Event) []Violation {
	var all []Violation
	for i, version := range versions[1:] {
		before := versions[i]
		if before.Epoch != version.Epoch {
			continue
		}
		message := ""
		switch {
		case version.Object.Lifecycle != nil:
			message = lifecycleTransition(before, version)
		case version.Deleted && version.Object.Configuration != nil && len(version.Object.Configuration.Spec.Finalizers) > 1:
			message = fmt.Sprintf("it was removed with finalizers %q", version.Object.Configuration.Spec.Finalizers)
		}
		if message != "" {
			all = append(all, violation([]history.Event{before, version}, 0, "%s", message))
		}
	}
	return all
}

// lifecycleTransition returns what is wrong with a change of a NamespaceLifecycle, or "".
func lifecycleTransition(before, after history.Event) string {
	oldSpec, newSpec := &before.Object.Lifecycle.Spec, &after.Object.Lifecycle.Spec
	if after.Deleted {
		// The write that removes the last finalizer removes the object, so the former version may still
		// contain one.
		if len(newSpec.Finalizers) > 1 {
			return fmt.Sprintf("it was removed while %d participants had not cleaned up: %q", len(newSpec.Finalizers), newSpec.Finalizers)
		}
		return ""
	}
	switch {
	case oldSpec.NamespaceUID != newSpec.NamespaceUID:
		return fmt.Sprintf("namespaceUID changed from %q to %q", oldSpec.NamespaceUID, newSpec.NamespaceUID)
	case !slices.EqualFunc(oldSpec.Plan, newSpec.Plan, samePlanned):
		return "the plan changed"
	case oldSpec.Initializers == nil && newSpec.Initializers != nil:
		return "initializers reappeared after the list was empty"
	case slices.ContainsFunc(newSpec.Finalizers, func(f v1alpha1.FinalizerName) bool { return !slices.Contains(oldSpec.Finalizers, f) }):
		return fmt.Sprintf("a finalizer was added: %q became %q", oldSpec.Finalizers, newSpec.Finalizers)
	}
	if oldSpec.Initializers == nil {
		return ""
	}
	was, is := helper.Pending(before.Object.Lifecycle), helper.Pending(after.Object.Lifecycle)
	switch {
	case outOfTurn(before.Object.Lifecycle, is) != "":
		return outOfTurn(before.Object.Lifecycle, is)
	case len(is) < len(was) && oldSpec.Initializers.Result != nil:
		return fmt.Sprintf("initializers went on after a failure: %q became %q", was, is)
	case oldSpec.Initializers.Result != nil && (newSpec.Initializers == nil || newSpec.Initializers.Result == nil):
		return "the failing result was taken back"
	}
	return ""
}

// outOfTurn returns what is wrong with a change of the pending initializers, or "": entries are only removed, each after
// or together with those that it waits for.
func outOfTurn(before *v1alpha1.NamespaceLifecycle, after []string) string {
	was := helper.Pending(before)
	removed := func(name string) bool { return !slices.Contains(after, name) }
	if !slices.Equal(slices.DeleteFunc(slices.Clone(was), removed), after) {
		return fmt.Sprintf("the pending initializers %q became %q, which does more than remove some", was, after)
	}
	for _, name := range was {
		if !removed(name) {
			continue
		}
		if waits := slices.DeleteFunc(helper.WaitsFor(before, name), removed); len(waits) > 0 {
			return fmt.Sprintf("the pending initializers %q became %q, although %q waits for %q", was, after, name, waits)
		}
	}
	return ""
}

func samePlanned(a, b v1alpha1.PlannedInitializer) bool { return equality.Semantic.DeepEqual(a, b) }
