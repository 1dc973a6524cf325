/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
//     finalizer that wants no pods and has none shows Dead, if no pod uses its service account, which may remove the finalizer.
//   - A report of the SDK shows Alive until its condition Served is False, and Dead then.
//   - A write of the field manager that follows the deletion, and is at most aliveFor old, shows Alive.
//
// A source that could not be read, pods that are not ready, other pods of the service account, users who are no service accounts, and
// workloads whose name contains that of the controller show that nothing is certain: the result is Unknown, unless another fact shows
// Alive.
type Controller struct {
	// Name is the field manager or the user under which it acted, or "" if it cannot be identified.
	Name  string   `json:"name,omitempty"`
	State Liveness `json:"state"`
	// Evidence are the facts that were found.
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is a fact about a program.
type Evidence struct {
	// Source is where the fact was read, such as "Deployment billing/operator".
	Source  string `json:"source"`
	Message string `json:"message"`
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
	// manager is the field manager that set the finalizer of the target, and written when it last wrote it after its deletion.
	manager string
	target  target
	written metav1.Time
	// user is the user who reported that it serves the initializer, and acted the one who acted last in this namespace.
	user, acted string
	// report is the status of its registration, if there is one.
	report *v1alpha1.RegisteredInitializerStatus
	// builtIn programs are those of Kubernetes. Nothing is concluded about them.
	builtIn bool
}

// name is the name that identifies the program, or "".
func (a actor) name() string { return cmp.Or(a.program(), a.user, a.acted) }

// program is the name by which a workload of the program is known, or "". A user is no program: a tenant can name a workload like a user.
func (a actor) program() string {
	if isGeneric(a.manager) {
		return ""
	}
	return a.manager
}

// read returns what identifies the program, without what differs between objects and what is known already.
func (a actor) read() actor {
	a.written, a.report = metav1.Time{}, nil
	return a
}

// accounts returns the service accounts of the program, as namespace/name.
func (a actor) accounts() (accounts []string) {
	for _, user := range slices.Compact([]string{a.user, a.acted}) {
		if namespace, name, err := serviceaccount.SplitUsername(user); err == nil {
			accounts = append(accounts, namespace+"/"+name)
		}
	}
	return accounts
}

// generic are names of clients with which people and other tools write objects, names of client libraries, and names that a
// framework proposes.
var generic = regexp.MustCompile(`(?i)^(kubectl.*|helm.*|argocd.*|flux.*|kustomize-controller|fleet.*|terraform.*|pulumi.*|ansible.*|rancher.*|curl|` +
	`mozilla|go-http-client|python.*|java.*|kubernetes java client.*|kubernetes-?client.*|fabric8.*|kube-rs|kopf|node-fetch|okhttp|openapi-generator|swagger-codegen|` +
	`k9s|lens|oc|before-first-apply|unknown|manager|controller|controllers|operator|controller-manager|provider|agent|main|app|server|finalizers?|` +
	`kubernetes|k8s|github|example|cluster|__debug_bin.*|.*\.test)$`)

// isGeneric reports whether programs of many kinds have a name.
func isGeneric(name string) bool { return generic.MatchString(name) }

// controller returns what is known of a program, and its workload or nil.
func (o Observation) controller(a actor) (*Controller, *workload) {
	read := o.Programs[a.read()]
	c := &Controller{Name: a.name(), State: Unknown, Evidence: slices.Concat(o.writes(a), a.reports(), read.evidence)}
	for _, user := range slices.Compact([]string{a.user, a.acted}) {
		if _, _, err := serviceaccount.SplitUsername(user); err != nil && user != "" {
			c.Evidence = append(c.Evidence, Evidence{Source: "User", Message: fmt.Sprintf("%q acted last, which is no service account", user), Shows: Unknown})
		}
	}
	for _, state := range []Liveness{Alive, Unknown, Dead} { // Dead needs certainty
		if slices.ContainsFunc(c.Evidence, func(e Evidence) bool { return e.Shows == state }) {
			c.State = state
			break
		}
	}
	return c, read.own
}

// controlled returns a finding about something that a program has to do, with the state of the program. It selects the
// remedies.
func (o Observation) controlled(a actor, cause Cause, state State, since *metav1.Time, message string, w words) Finding {
	if a.builtIn {
		return o.finding(cause, state, since, message, w)
	}
	c, own := o.controller(a)
	if o.hypothetical && c.State == Dead {
		state = Stuck
	}
	if own != nil {
		w["RUNSIN"], w["WORKLOAD"] = []string{own.namespace}, []string{own.reference()}
	}
	switch {
	case c.State == Alive && own != nil:
		w["LOGS"] = []string{"true"}
	case c.State == Alive:
		w["NOLOGS"] = []string{"true"}
	case c.State == Dead && own != nil && own.kind != daemonSet:
		w["STOPPED"] = []string{"true"}
	default:
		w["START"] = []string{"true"}
	}
	if c.State != Alive {
		w["REMOVABLE"] = []string{"true"}
	}
	f := o.finding(cause, state, since, message, w)
	f.Controller = c
	return f
}

// writes returns which field manager set the finalizer, and whether it has written since.
func (o Observation) writes(a actor) []Evidence {
	if a.manager == "" {
		return nil
	}
	e := Evidence{Source: "managedFields", Message: fmt.Sprintf("field manager %q set the finalizer", a.manager)}
	switch {
	case isGeneric(a.manager):
		e.Message += "; clients of many kinds have this name, so it does not identify the controller"
	case !a.written.IsZero() && o.age(&a.written) <= aliveFor:
		e.Message, e.Shows = fmt.Sprintf("%s, and wrote the object at %s, after the deletion", e.Message, a.written.UTC().Format(time.RFC3339)), Alive
	}
	return []Evidence{e}
}

// reports returns what the last report of the SDK shows.
func (a actor) reports() []Evidence {
	if a.report == nil {
		return nil
	}
	e := Evidence{Source: "NamespaceInitializerConfiguration", Message: "no program has ever reported that it serves " + a.finalizer}
	if reported := a.report.ReportTime; reported != nil {
		e.Message, e.Shows = fmt.Sprintf("user %q last reported at %s that it serves %s", a.report.Reporter, reported.UTC().Format(time.RFC3339), a.finalizer), Alive
		if isOverdue(a.report) {
			e.Message, e.Shows = e.Message+"; the report is overdue", Dead
		}
	}
	return []Evidence{e}
}
