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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// Liveness reports whether a program runs.
type Liveness string

const (
	// Alive: at least one fact shows that the program runs.
	Alive Liveness = "Alive"
	// Dead: no fact shows that it runs, every source was read, and one conclusive fact or two facts of different sources show
	// that it does not run.
	Dead Liveness = "Dead"
	// Unknown is everything else.
	Unknown Liveness = "Unknown"
)

// Controller is what is known of the program that has to act: it removes a finalizer, or is an initializer or a
// participant.
//
// It is identified by the field manager that set the finalizer, or by the service account under which it acted. Names
// that many programs have, such as manager or kubectl, identify nothing. These facts count, in evidence of a source each:
//
//   - A Lease is its Lease if the Lease has its name, or if the same field manager writes it. A Lease that is renewed shows
//     Alive. One that expired more than deadAfter ago shows Dead, and so does the pod of its last holder, if this pod
//     has ended or does not exist.
//   - A Deployment, StatefulSet or DaemonSet is its workload if it, its label app.kubernetes.io/name, a container or an
//     image has its name, or if its pods use its service account. Ready pods show Alive. A workload that wants no pods
//     and has none shows Dead, which is conclusive.
//   - Ready pods of its service account show Alive, and a service account without pods shows Dead. A service account
//     that does not exist is conclusive: nothing can authenticate as it. The service account "default" shows nothing.
//   - A report of the SDK shows Alive until it is overdue, and Dead then.
//   - A write that follows the deletion, and is at most aliveFor old, shows Alive.
//
// A source that could not be read, a workload whose pods are not ready, and programs that run and have a similar name show
// that nothing is certain: the result is Unknown, unless another fact shows Alive.
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
	// Conclusive facts need no second one.
	Conclusive bool `json:"conclusive,omitempty"`
}

const (
	// deadAfter is how long ago a Lease expired at least if it shows that its holder does not run: leaders change.
	deadAfter = 5 * time.Minute
	// aliveFor is the age of the last write until which it shows that its writer runs.
	aliveFor = 5 * time.Minute
)

// actor identifies a program that has to act.
type actor struct {
	// finalizer is what the program has to remove, or the name of the initializer.
	finalizer string
	// manager is the field manager that set the finalizer, and written when it last wrote.
	manager string
	written *metav1.Time
	// deleted is when the object was deleted.
	deleted *metav1.Time
	// user is the user under which it acted or reported.
	user string
	// report is the status of its registration, if there is one.
	report *v1alpha1.RegisteredInitializerStatus
	// lease is namespace/name of the Lease of a controller of Kubernetes. It is the only source then.
	lease string
}

// controller returns what is known of a program, and its workload or nil. While the observation is being made, it notes
// that the program matters, so that the sources are read.
func (o Observation) controller(a actor) (*Controller, *workload) {
	if o.wanted != nil {
		*o.wanted = append(*o.wanted, a)
		return &Controller{State: Unknown}, nil
	}
	c := &Controller{Name: a.name()}
	for _, source := range []func(actor) []Evidence{o.writes, o.report, o.account, o.leases, o.groups} {
		c.Evidence = append(c.Evidence, source(a)...)
	}
	workload, found := o.workloads(a)
	c.Evidence = append(c.Evidence, found...)
	c.State = conclude(c.Evidence)
	return c, workload
}

// conclude returns the state that facts show. Dead needs certainty.
func conclude(all []Evidence) Liveness {
	shows := func(state Liveness) bool {
		return slices.ContainsFunc(all, func(e Evidence) bool { return e.Shows == state })
	}
	dead, conclusive := 0, false
	for _, e := range all {
		if e.Shows == Dead {
			dead++
			conclusive = conclusive || e.Conclusive
		}
	}
	switch {
	case shows(Alive):
		return Alive
	case !shows(Unknown) && (conclusive || dead >= 2):
		return Dead
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
		w["RUNSIN"], w["WORKLOAD"] = workload.namespace, workload.reference()
	}
	switch known := workload != nil; {
	case c.State == Unknown:
		w["UNKNOWN"] = "true"
	case c.State == Alive && known:
		w["ALIVE"], w["LOGS"] = "true", "true"
	case c.State == Alive:
		w["ALIVE"], w["NOLOGS"] = "true", "true"
	case known && workload.kind != daemonSet:
		w["STOPPED"] = "true"
	default:
		w["UNINSTALLED"] = "true"
	}
	f := o.finding(cause, state, since, message, w)
	f.Controller = c
	return f
}

// writes returns what the last write of the program shows.
func (o Observation) writes(a actor) []Evidence {
	if a.manager == "" || a.lease != "" {
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

// account returns what the service account of the program shows.
func (o Observation) account(a actor) []Evidence {
	namespace, name := a.serviceAccount()
	if name == "" {
		if a.user == "" {
			return nil
		}
		return []Evidence{{Source: "User", Message: fmt.Sprintf("%q acted last, which is no service account", a.user)}}
	}
	source, found := fmt.Sprintf("ServiceAccount %s/%s", namespace, name), o.Runtime.Accounts[namespace+"/"+name]
	switch {
	case apierrors.IsNotFound(found.Account.Err):
		return []Evidence{{Source: source, Message: "does not exist any more, so no program can authenticate as it", Shows: Dead, Conclusive: true}}
	case found.Account.Err != nil:
		return []Evidence{notChecked(source, found.Account.Err)}
	case found.Pods.Err != nil:
		return []Evidence{notChecked("Pods of "+source, found.Pods.Err)}
	}
	ready := 0
	for i := range found.Pods.Object {
		if isReady(&found.Pods.Object[i]) {
			ready++
		}
	}
	e := Evidence{Source: "Pods of " + source, Message: fmt.Sprintf("%d, of which %d are ready", len(found.Pods.Object), ready), Shows: Unknown}
	switch {
	case name == "default": // other programs use it, too
		e.Message += "; other programs use this account, too"
	case ready > 0:
		e.Shows = Alive
	case len(found.Pods.Object) == 0:
		e.Message, e.Shows = "no such pods", Dead
	}
	return []Evidence{e}
}

// groups notes that the API group in the name of a finalizer is not served. It shows nothing: many names are no groups.
func (o Observation) groups(a actor) []Evidence {
	domain, _, qualified := strings.Cut(a.finalizer, "/")
	if !qualified || a.lease != "" || o.APIServices.Err != nil {
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
