/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// turns returns a finding for each initializer that has its turn. The length of each turn decides.
func (o Observation) turns(lifecycle *v1alpha1.NamespaceLifecycle) []Finding {
	var found []Finding
	acting := helper.Acting(lifecycle)
	for _, name := range acting {
		message := helper.Message(lifecycle)
		if len(acting) > 1 {
			message = waiting(lifecycle, name)
		}
		if after := successors(lifecycle, name); len(after) > 0 {
			message += "; after it: " + strings.Join(after, ", ")
		}
		var since *metav1.Time
		if start := helper.TurnStart(lifecycle, name); start != nil {
			since = &metav1.Time{Time: start.Time}
		}
		state := Waiting
		if helper.IsStalled(lifecycle, name) {
			state = Stuck
		}
		if name == v1alpha1.InitializerLifecycle { // nsinit-controller-manager acts
			found = append(found, o.finding(InitializerPending, state, since, message, nil))
			continue
		}
		a := o.initializerActor(name)
		f := o.controlled(a, InitializerPending, state, since, message, words{"INITIALIZER": {name}, "PODS": {namespaceOf(a.acted)}})
		if f.isDead() {
			f.fix(fmt.Sprintf("skip initializer %q, whose program %q is dead", name, f.Controller.Name), opensWithout, o.skip(name))
		}
		found = append(append(found, f), o.served(name)...)
	}
	return found
}

// waiting describes the turn of one of several initializers that act at the same time.
func waiting(lifecycle *v1alpha1.NamespaceLifecycle, name string) string {
	text, entry := fmt.Sprintf("waiting for initializer %q", name), helper.Entry(lifecycle, name)
	if entry == nil {
		return text
	}
	if planned := helper.Planned(lifecycle, name); entry.Deadline != nil && planned != nil && planned.FailurePolicy != nil {
		text += fmt.Sprintf(" until %s, its deadline with failurePolicy %s", entry.Deadline.UTC().Format(time.RFC3339), *planned.FailurePolicy)
	}
	if entry.Message != "" {
		text += ": " + entry.Message
	}
	return text
}

// successors returns the pending initializers that wait for one, directly or not, in the order of the plan. One
// with an ordering is described with all that it waits for.
func successors(lifecycle *v1alpha1.NamespaceLifecycle, name string) []string {
	reached := []string{name}
	for i := 0; i < len(reached); i++ {
		for _, other := range helper.Pending(lifecycle) {
			if !slices.Contains(reached, other) && slices.Contains(helper.WaitsFor(lifecycle, other), reached[i]) {
				reached = append(reached, other)
			}
		}
	}
	var described []string
	for _, other := range helper.Pending(lifecycle) {
		if other == name || !slices.Contains(reached, other) {
			continue
		}
		if planned := helper.Planned(lifecycle, other); planned != nil && planned.Ordering != nil {
			other += " (waits for " + strings.Join(helper.WaitsFor(lifecycle, other), ", ") + ")"
		}
		described = append(described, other)
	}
	return described
}

// served reports whether a program serves an initializer that has its turn. An initializer that never reported may be a
// person, and one that reports is slow only while its turn is stalled.
func (o Observation) served(name string) []Finding {
	configuration, registration := helper.Registration(o.Configurations, name)
	if registration == nil {
		return nil
	}
	w := words{"INITIALIZER": {name}, "CONFIGURATION": {configuration}}
	if registration.ReportTime == nil {
		w["NEVER"] = []string{"true"}
		return []Finding{o.finding(InitializerNotServed, Waiting, nil, fmt.Sprintf("no program has ever reported that it serves initializer %q", name), w)}
	}
	reported := &metav1.Time{Time: registration.ReportTime.Time}
	age := duration.HumanDuration(max(0, o.age(reported)))
	w["PODS"], w["REPORTED"] = []string{namespaceOf(registration.Reporter)}, []string{"true"}
	switch {
	case isOverdue(registration):
		return []Finding{o.controlled(o.initializerActor(name), InitializerNotServed, Stuck, reported,
			fmt.Sprintf("no program serves initializer %q: user %q last reported %s ago", name, registration.Reporter, age), w)}
	case helper.IsStalled(o.Lifecycle.Object, name):
		message := fmt.Sprintf("the program of initializer %q runs: user %q reported %s ago", name, registration.Reporter, age)
		if progress := helper.Entry(o.Lifecycle.Object, name); progress != nil && progress.Message != "" {
			message += "; its last message: " + progress.Message
		}
		return []Finding{o.controlled(o.initializerActor(name), InitializerSlow, Stuck, nil, message, w)}
	}
	return nil
}

// isOverdue reports whether no program reports any more that it serves an initializer.
func isOverdue(registration *v1alpha1.RegisteredInitializerStatus) bool {
	return apimeta.IsStatusConditionFalse(registration.Conditions, v1alpha1.ConditionServed)
}

// initializerActor identifies the program of an initializer or a participant: the user who last reported that it serves
// it, and the one who acted as it in this namespace.
func (o Observation) initializerActor(name string) actor {
	a := actor{finalizer: name}
	if entry := helper.Entry(o.Lifecycle.Object, name); entry != nil {
		a.acted = entry.LastActor
	}
	if _, a.report = helper.Registration(o.Configurations, name); a.report != nil {
		a.user = a.report.Reporter
	}
	return a
}

// namespaceOf returns the namespace of a service account, or "" for another user.
func namespaceOf(user string) string {
	namespace, _, _ := serviceaccount.SplitUsername(user)
	return namespace
}
