/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Liveness reports whether a program runs.
type Liveness string

const (
	// Alive: at least one fact shows that the program runs.
	Alive Liveness = "Alive"
	// Dead: a fact shows that it does not run, and each source was read and leaves no doubt.
	Dead Liveness = "Dead"
	// Unknown is everything else.
	Unknown Liveness = "Unknown"
)

// Controller is what is known of the program that has to act: it removes a finalizer, or is an initializer or a
// participant.
//
// The controller of a finalizer is identified by the field manager that set the finalizer, which any client can choose. Names
// that many programs have, such as manager or kubectl, identify nothing. Initializers and participants are identified by their
// service accounts. These facts count, in evidence of a source each:
//
//   - A Deployment, StatefulSet or DaemonSet is its workload if it, its label app.kubernetes.io/name, a container or an
//     image has its name, or if its pods use its service account. Ready pods show Alive. A workload of the controller of a
//     finalizer that wants no pods and has none shows Dead, if its service account may remove the finalizer.
//   - Ready pods of its service account, or of that of such a workload, show Alive.
//   - A report of the SDK shows Alive until it is overdue, and Dead then.
//   - A Lease that is renewed shows Alive, if it has its name or the same field manager writes it. One that expired shows
//     nothing: programs change their Leases.
//   - A write that follows the deletion, and is at most aliveFor old, shows Alive.
//
// A source that could not be read, pods that are not ready, users who are no service accounts, and Leases, workloads and pods
// that have a similar name show that nothing is certain: the result is Unknown, unless another fact shows Alive.
type Controller struct {
	// Name is the field manager or the user under which it acted, or "" if it cannot be identified.
	Name  string   `json:"name,omitempty"`
	State Liveness `json:"state"`
	// Evidence are the facts that were found.
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is a fact about a program.
type Evidence struct {
	// Source is where the fact was read, such as "Lease billing/operator".
	Source  string `json:"source"`
	Message string `json:"message"`
	// Time is when the program last did this, if that is known.
	Time *metav1.Time `json:"time,omitempty"`
	// Shows is the state that the fact speaks for, Unknown if it excludes Dead, and "" if it speaks for none.
	Shows Liveness `json:"shows,omitempty"`
}

// aliveFor is the age of the last write until which it shows that its writer runs.
const aliveFor = 5 * time.Minute

// target is an object, or all objects of a resource in a namespace.
type target struct{ group, resource, namespace, name string }

// actor identifies a program that has to act.
type actor struct {
	// finalizer is what the program has to remove, or the name of the initializer.
	finalizer string
	// manager is the field manager that set the finalizer, and written when it last wrote.
	manager string
	written *metav1.Time
	// deleted is when the object was deleted.
	deleted *metav1.Time
	// target is what has the finalizer.
	target target
	// user is the user who reported that it serves the initializer, and acted the one who acted last in this namespace.
	user, acted string
	// report is the status of its registration, if there is one.
	report *v1alpha1.RegisteredInitializerStatus
	// builtIn programs are those of Kubernetes. Of one with a lease, namespace/name, this Lease is the only source.
	builtIn bool
	lease   string
}

// program returns the actor without what differs between objects that it has to act on. Only writes depends on this.
func (a actor) program() actor {
	a.written, a.deleted = nil, nil
	return a
}

// controller returns what is known of a program, and its workload or nil. While the observation is being made, it notes
// that the program matters, so that the sources are read.
func (o Observation) controller(a actor) (*Controller, *workload) {
	if o.wanted != nil {
		*o.wanted = append(*o.wanted, a.program())
		return &Controller{State: Unknown}, nil
	}
	program := a.program()
	v, known := o.Runtime.verdicts[program]
	if !known {
		for _, source := range []func(actor) []Evidence{o.report, o.accounts, o.leases, o.groups} {
			v.evidence = append(v.evidence, source(a)...)
		}
		var found []Evidence
		v.workload, found = o.workloads(a)
		v.evidence = append(v.evidence, found...)
		if o.Runtime.verdicts != nil {
			o.Runtime.verdicts[program] = v
		}
	}
	c := &Controller{Name: a.name(), Evidence: slices.Concat(o.writes(a), v.evidence)}
	c.State = conclude(c.Evidence)
	return c, v.workload
}

// verdict is what every source but the writes of a program shows, and its workload or nil.
type verdict struct {
	evidence []Evidence
	workload *workload
}

// conclude returns the state that facts show. Dead needs certainty.
func conclude(all []Evidence) Liveness {
	for _, state := range []Liveness{Alive, Unknown, Dead} {
		if slices.ContainsFunc(all, func(e Evidence) bool { return e.Shows == state }) {
			return state
		}
	}
	return Unknown
}

// controlled returns a finding about something that a program has to do, with the state of the program. It selects the
// remedies.
func (o Observation) controlled(a actor, cause Cause, state State, since *metav1.Time, message string, w words) Finding {
	c, workload := o.controller(a)
	if o.hypothetical && c.State == Dead {
		state = Stuck
	}
	if w == nil {
		w = words{}
	}
	if workload != nil {
		w["RUNSIN"], w["WORKLOAD"] = []string{workload.namespace}, []string{workload.reference()}
	}
	switch known := workload != nil; {
	case c.State == Alive && known:
		w["LOGS"] = []string{"true"}
	case c.State == Alive:
		w["NOLOGS"] = []string{"true"}
	case c.State == Dead && known && workload.kind != daemonSet:
		w["STOPPED"] = []string{"true"}
	default:
		w["START"] = []string{"true"}
	}
	if c.State != Alive && !a.builtIn {
		w["REMOVABLE"] = []string{"true"}
	}
	f := o.finding(cause, state, since, message, w)
	f.Controller = c
	return f
}

// writes returns what the last write of the program shows.
func (o Observation) writes(a actor) []Evidence {
	if a.manager == "" || a.builtIn {
		return nil
	}
	e := Evidence{Source: "managedFields", Time: a.written, Message: fmt.Sprintf("field manager %q set the finalizer", a.manager)}
	if a.written != nil {
		e.Message += ", and last wrote the object at " + timeOf(a.written)
	}
	switch {
	case isGeneric(a.manager):
		e.Message += "; clients of many kinds have this name, so it does not identify the controller"
	case a.written != nil && a.deleted != nil && a.deleted.Before(a.written) && o.age(a.written) <= aliveFor:
		e.Message += ", after the deletion"
		e.Shows = Alive
	}
	return []Evidence{e}
}

// report returns what the last report of the SDK shows.
func (o Observation) report(a actor) []Evidence {
	if a.report == nil {
		return nil
	}
	e := Evidence{Source: "NamespaceInitializerConfiguration", Message: "no program has ever reported that it serves " + a.finalizer}
	if a.report.ReportTime != nil {
		e.Time = &metav1.Time{Time: a.report.ReportTime.Time}
		e.Message = fmt.Sprintf("user %q last reported at %s that it serves %s", a.report.Reporter, timeOf(e.Time), a.finalizer)
		e.Shows = Alive
		if o.isOverdue(a.report) {
			e.Message += "; the report is overdue"
			e.Shows = Dead
		}
	}
	return []Evidence{e}
}

// accounts returns what the users of an initializer or a participant show.
func (o Observation) accounts(a actor) (found []Evidence) {
	accounts, others := a.accounts()
	for _, account := range accounts {
		found = append(found, o.podsOf(account))
	}
	for _, user := range others {
		found = append(found, Evidence{Source: "User", Message: fmt.Sprintf("%q acted last, which is no service account", user), Shows: Unknown})
	}
	return found
}

// podsOf returns what the pods of a service account show. That it has none shows nothing: its program can use another one now.
func (o Observation) podsOf(account string) Evidence {
	source := "Pods of ServiceAccount " + account
	pods, read := o.Runtime.Pods[account]
	switch {
	case !read:
		return notChecked(source, errors.New(tooMany))
	case pods.Err != nil:
		return notChecked(source, pods.Err)
	case len(pods.Object) == 0:
		return Evidence{Source: source, Message: "no such pods"}
	}
	ready := 0
	for i := range pods.Object {
		if isReady(&pods.Object[i]) {
			ready++
		}
	}
	e := Evidence{Source: source, Message: fmt.Sprintf("%d, of which %d are ready", len(pods.Object), ready), Shows: Unknown}
	if path.Base(account) == defaultAccount {
		e.Message += "; other programs use this account, too"
	} else if ready > 0 {
		e.Shows = Alive
	}
	return e
}

// groups notes that the API group in the name of a finalizer is not served. It shows nothing: many names are no groups.
func (o Observation) groups(a actor) []Evidence {
	domain, _, qualified := strings.Cut(a.finalizer, "/")
	if !qualified || a.builtIn || o.APIServices.Err != nil {
		return nil
	}
	var served []string
	for _, service := range o.APIServices.Object {
		if group := service.Spec.Group; group != "" && (group == domain || strings.HasSuffix(group, "."+domain) || strings.HasSuffix(domain, "."+group)) {
			served = append(served, service.Name)
		}
	}
	if len(served) == 0 {
		return []Evidence{{Source: "APIServices", Message: fmt.Sprintf("no API group of %s is served", domain)}}
	}
	return []Evidence{{Source: "APIServices", Message: "served: " + listed(served)}}
}

func notChecked(source string, err error) Evidence {
	return Evidence{Source: source, Message: fmt.Sprintf("not checked: %v", err), Shows: Unknown}
}

func timeOf(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }
