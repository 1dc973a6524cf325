/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/faults/history"
)

// checkerTest is a history that is judged.
type checkerTest struct {
	play func(*story)
	// check and message are those of the one violation. Empty: there is none.
	check, message string
}

// TestCheckers: each checker finds violations in histories that violate its invariant, and none in others.
// Each violation is the only one, and names its proof.
func TestCheckers(t *testing.T) {
	const a, b = "uid-a", "uid-b"
	tests := map[string]checkerTest{
		"a whole life": {play: func(s *story) {
			s.opens("f-1", a)
			s.tenantWrites("f-1", "x")
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
			s.mark(history.MarkRemoved)
		}},

		"I1: before the gate opened": {check: "I1", message: "before its gate opened", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.tenantWrites("f-1", "x")
			s.initializerActs("f-1", a, first, "result")
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.open("f-1", a)
		}},
		"I1: the gate never opened": {check: "I1", message: "whose gate never opened", play: func(s *story) {
			s.create("f-1", a)
			s.tenantWrites("f-1", "x")
		}},
		"I1: the next namespace of the name": {check: "I1", message: "whose gate never opened", play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
			s.create("f-1", b)
			s.tenantWrites("f-1", "x")
		}},
		"I1: between two namespaces": {check: "I1", message: "after the former namespace was removed", play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
			s.tenantWrites("f-1", "x")
			s.create("f-1", b)
		}},
		"between two namespaces, and removed": {play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
			s.object("f-1", "x", "x", map[string]string{history.AnnotationTenant: "alice"})
			s.removeObject("f-1", "x", "x")
			s.create("f-1", b)
		}},
		"I1: a namespace without a gate": {check: "I1", message: "without the label", play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, open: true}, true)
		}},
		"I1: a deletion": {check: "I1", message: `tenant "alice" deleted`, play: func(s *story) {
			s.create("f-1", a)
			s.object("f-1", "kube-root-ca.crt", "root", nil)
			s.removeObject("f-1", "kube-root-ca.crt", "root")
			s.operation(history.Operation{Client: "alice", Role: history.RoleTenant, Verb: "delete", Resource: "configmaps", Namespace: "f-1", UID: "root"})
		}},
		"a deletion by a controller": {play: func(s *story) {
			s.create("f-1", a)
			s.object("f-1", "kube-root-ca.crt", "root", nil)
			s.removeObject("f-1", "kube-root-ca.crt", "root")
			s.operation(history.Operation{Client: "alice", Role: history.RoleTenant, Verb: "delete", Resource: "configmaps", Namespace: "f-1", UID: "root", Outcome: history.Refused})
		}},
		"what initializers write": {play: func(s *story) {
			s.create("f-1", a)
			s.initializerActs("f-1", a, first, "result")
		}},
		"namespaces of others": {play: func(s *story) { s.put(namespace{name: "kube-system", uid: a, open: true}, true) }},

		"I2: still closed": {check: "I2", message: "still closed", play: func(s *story) {
			s.create("f-1", a)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"I2: still terminating": {check: "I2", message: "still terminating", play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
			s.remove("f-1", a)
		}},
		"I2: not removed": {check: "I2", message: "was not removed", play: func(s *story) {
			s.opens("f-1", a)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
			s.terminate("f-1", a, true)
			s.mark(history.MarkRemoved)
		}},
		"I2: open and not Ready": {check: "I2", message: "not Ready", play: func(s *story) {
			s.opens("f-1", a)
			s.put(namespace{name: "f-1", uid: a, open: true, silent: true}, false)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"I2: closed and Ready": {check: "I2", message: "Ready although its gate is closed", play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, ready: true}, true)
			s.put(namespace{name: "f-1", uid: a}, false)
			s.terminate("f-1", a, false)
			s.remove("f-1", a)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"I2: silent": {check: "I2", message: "no condition states the reason", play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, silent: true}, true)
			s.mark(history.MarkQuiet)
			s.at += time.Minute
			s.terminate("f-1", a, false)
			s.remove("f-1", a)
			s.mark(history.MarkSettled)
		}},
		"I2: silent when watches are served": {check: "I2", message: "no condition states the reason", play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, silent: true}, true)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkServed)
			s.at += time.Minute
			s.terminate("f-1", a, false)
			s.remove("f-1", a)
			s.mark(history.MarkSettled)
		}},
		"silent until watches are served": {play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, silent: true}, true)
			s.mark(history.MarkQuiet)
			s.at += time.Minute
			s.mark(history.MarkServed)
			s.terminate("f-1", a, false)
			s.remove("f-1", a)
			s.mark(history.MarkSettled)
		}},
		"silent while the faults last": {play: func(s *story) {
			s.put(namespace{name: "f-1", uid: a, silent: true}, true)
			s.at += time.Minute
			s.put(namespace{name: "f-1", uid: a}, false)
			s.mark(history.MarkQuiet)
			s.terminate("f-1", a, false)
			s.remove("f-1", a)
			s.mark(history.MarkSettled)
		}},

		"I3: no such revision": {check: "I3", message: "no revision of the object", play: func(s *story) {
			l := lifecycle("f-1", a, []string{first}, first)
			s.configure("base", first)
			s.create("f-1", a)
			s.record(l)
			s.acknowledge("update", l, 0, 99, s.at, s.at+1)
		}},
		"I3: no such object": {check: "I3", message: "no revision of the object", play: func(s *story) {
			s.acknowledge("create", lifecycle("f-1", a, nil), 0, 7, s.at, s.at+1)
		}},
		"I3: never deleted": {check: "I3", message: "never deleted", play: func(s *story) {
			l := lifecycle("f-1", a, []string{first}, first)
			s.configure("base", first)
			s.create("f-1", a)
			s.record(l)
			s.acknowledge("delete", l, 0, 0, s.at, s.at+1)
		}},

		"I4: opened twice": {check: "I4", message: "opened 2 times", play: func(s *story) {
			s.opens("f-1", a)
			s.put(namespace{name: "f-1", uid: a}, false)
			s.open("f-1", a)
		}},
		"I4: closed again": {check: "I4", message: "closed again", play: func(s *story) {
			s.opens("f-1", a)
			s.put(namespace{name: "f-1", uid: a}, false)
		}},
		"I4: no lifecycle": {check: "I4", message: "no NamespaceLifecycle", play: func(s *story) {
			s.create("f-1", a)
			s.open("f-1", a)
		}},
		"I4: pending": {check: "I4", message: "no NamespaceLifecycle", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, []string{first}, first))
			s.initializerActs("f-1", a, first, "result")
			s.open("f-1", a)
		}},
		"I4: the lifecycle of the former namespace": {check: "I4", message: "no NamespaceLifecycle", play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
			s.create("f-1", b)
			s.open("f-1", b)
		}},
		"I4: an initializer did not act": {check: "I4", message: "never acted", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.open("f-1", a)
		}},
		"I4: an initializer acted late": {check: "I4", message: "before initializer", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.open("f-1", a)
			s.initializerActs("f-1", a, first, "result")
		}},
		"skipped initializers need not act": {play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			skipped := lifecycle("f-1", a, []string{first})
			skipped.Spec.Skipped = []string{first}
			s.initialize(skipped, created.Revision)
			s.open("f-1", a)
		}},
		"I4: two results": {check: "I4", message: "left 2 results", play: func(s *story) {
			s.opens("f-1", a)
			s.initializerActs("f-1", a, first, "another")
		}},
		"I4: a result is lost": {check: "I4", message: "a result of initializer", play: func(s *story) {
			s.opens("f-1", a)
			s.resultGoes(first)
		}},
		"results are deleted with their namespace": {play: func(s *story) {
			s.opens("f-1", a)
			s.terminate("f-1", a, true)
			s.resultGoes(first)
			s.remove("f-1", a)
		}},
		"I4: out of order": {check: "I4", message: "for which it waits", play: func(s *story) {
			const second = "three" + history.InitializerDomain
			plan := []string{first, second}
			s.configure("base", plan...)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, plan, plan...))
			s.initializerActs("f-1", a, second, "second")
			s.initializerActs("f-1", a, first, "first")
			s.initialize(lifecycle("f-1", a, plan), created.Revision)
			s.open("f-1", a)
		}},
		"at the same time": {play: func(s *story) {
			const second = "three" + history.InitializerDomain
			plan := []string{first, second}
			s.order("base", plan, second)
			s.create("f-1", a)
			s.record(ordered(lifecycle("f-1", a, plan, plan...), second))
			s.initializerActs("f-1", a, second, "second")
			half := s.record(ordered(lifecycle("f-1", a, plan, first), second))
			s.initializerActs("f-1", a, first, "first")
			s.initialize(ordered(lifecycle("f-1", a, plan), second), half.Revision)
			s.open("f-1", a)
		}},
		"I4: before the one that it names": {check: "I4", message: "for which it waits", play: func(s *story) {
			const second = "three" + history.InitializerDomain
			plan := []string{first, second}
			s.order("base", plan, first, second)
			s.create("f-1", a)
			created := s.record(ordered(lifecycle("f-1", a, plan, plan...), first, second))
			s.initializerActs("f-1", a, first, "first")
			s.initializerActs("f-1", a, second, "second")
			s.initialize(ordered(lifecycle("f-1", a, plan), first, second), created.Revision)
			s.open("f-1", a)
		}},
		"Plan: another order": {check: "Plan", message: "is that of no revision", play: func(s *story) {
			s.order("base", []string{first}, first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.initializerActs("f-1", a, first, "first")
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.open("f-1", a)
		}},
		"in the order of a lost plan": {play: func(s *story) {
			const second = "three" + history.InitializerDomain
			s.configure("base", second)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, []string{second}, second))
			s.initializerActs("f-1", a, second, "second")
			s.mark(history.MarkLost)
			s.epoch++
			s.nsinit, s.versions["f-1"], s.versions["base"] = 0, 0, 0
			s.configure("base", first, second)
			s.mark(history.MarkReplaced)
			plan := []string{first, second}
			again := lifecycle("f-1", a, plan, plan...)
			again.UID = "again"
			created := s.record(again)
			s.initializerActs("f-1", a, first, "first")
			done := lifecycle("f-1", a, plan)
			done.UID = "again"
			s.initialize(done, created.Revision)
			s.open("f-1", a)
		}},
		"I4: a participant did not clean up": {check: "I4", message: "did not clean up", play: func(s *story) {
			participates(s)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
		}},
		"a participant cleaned up": {play: func(s *story) {
			participates(s)
			s.terminate("f-1", a, true)
			s.operation(history.Operation{Client: partner, Role: history.RoleInitializer, Verb: history.VerbCleanup, NamespaceUID: a, Start: s.at, End: s.at})
			s.remove("f-1", a)
		}},

		"a participant of a storage that was lost": {play: func(s *story) {
			participates(s)
			s.terminate("f-1", a, true)
			s.mark(history.MarkLost)
			s.epoch++
			s.mark(history.MarkReplaced)
			s.remove("f-1", a)
		}},
		"I4: a participant of a restored lifecycle did not clean up": {check: "I4", message: "did not clean up", play: func(s *story) {
			participates(s)
			s.restore(s.nsinit)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
		}},
		"a participant of a lifecycle that is newer than the snapshot": {play: func(s *story) {
			participates(s)
			s.restore(1)
			s.terminate("f-1", a, true)
			s.remove("f-1", a)
		}},
		"a step back to a snapshot": {play: func(s *story) {
			plan := []string{first, "three" + history.InitializerDomain}
			s.configure("base", plan...)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, plan, plan...))
			s.initialize(lifecycle("f-1", a, plan, plan[1]), created.Revision)
			s.restore(created.Revision)
			s.acknowledge("get", lifecycle("f-1", a, plan), 0, created.Revision, s.at, s.at+1)
			s.initialize(lifecycle("f-1", a, plan, plan[1]), created.Revision)
		}},
		"Linearizable: a lost version": {check: "Linearizable", message: "was lost when the storage was replaced", play: func(s *story) {
			plan := []string{first, "three" + history.InitializerDomain}
			s.configure("base", plan...)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, plan, plan...))
			lost := s.record(lifecycle("f-1", a, plan, plan[1]))
			s.restore(created.Revision)
			s.acknowledge("get", lifecycle("f-1", a, plan), 0, lost.Revision, s.at, s.at+1)
		}},
		"I3: lost in the second life of an object": {check: "I3", message: "no revision of the object", play: func(s *story) {
			l := lifecycle("f-1", a, []string{first}, first)
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(l)
			s.event(history.Nsinit, history.Event{Key: created.Key, Deleted: true, Object: created.Object})
			s.restore(created.Revision)
			s.acknowledge("update", l, 0, 99, s.at, s.at+1)
		}},
		"Linearizable: a write that is based on a version before the snapshot": {check: "Linearizable", message: "no order", play: func(s *story) {
			plan := []string{first, "three" + history.InitializerDomain}
			s.configure("base", plan...)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, plan, plan...))
			lost := s.record(lifecycle("f-1", a, plan, plan[1]))
			s.restore(created.Revision)
			s.initialize(lifecycle("f-1", a, plan, plan[1]), lost.Revision)
		}},
		"I5: opened while the storage was lost": {check: "I5", message: "while the storage of nsinit was lost", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.mark(history.MarkLost)
			s.epoch++
			s.nsinit = 0
			s.record(lifecycle("f-1", a, nil))
			s.open("f-1", a)
			s.mark(history.MarkReplaced)
		}},
		"complete before the storage was lost": {play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.initializerActs("f-1", a, first, "result")
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.mark(history.MarkLost)
			s.epoch++
			s.open("f-1", a)
			s.mark(history.MarkReplaced)
		}},
		"opened after the loss was acknowledged": {play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.mark(history.MarkLost)
			s.epoch++
			s.nsinit = 0
			s.mark(history.MarkReplaced)
			s.record(lifecycle("f-1", a, nil))
			s.open("f-1", a)
		}},

		"Plan: stale": {check: "Plan", message: "another one replaced", play: func(s *story) {
			s.configure("base", first)
			s.configure("more", partner)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, []string{first}, first))
		}},
		"a change while the namespace is created": {play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.configure("more", partner)
			s.record(lifecycle("f-1", a, []string{first}, first))
		}},
		"Plan: a mixture": {check: "Plan", message: "that of no revision", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, []string{"else" + history.InitializerDomain}, first))
		}},
		"Plan: empty": {check: "Plan", message: "another one replaced", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, nil))
		}},

		"Linearizable: two authors": {check: "Linearizable", message: "both acknowledged as the author", play: func(s *story) {
			s.opens("f-1", a)
			l := lifecycle("f-1", a, []string{first})
			s.acknowledge("update", l, 2, 3, s.at, s.at+1)
		}},
		"Linearizable: a lost update": {check: "Linearizable", message: "no order", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			created := s.record(lifecycle("f-1", a, []string{first}, first))
			s.record(lifecycle("f-1", a, []string{first}, first))
			s.initializerActs("f-1", a, first, "result")
			s.initialize(lifecycle("f-1", a, []string{first}), created.Revision)
			s.open("f-1", a)
		}},
		"Linearizable: a stale read": {check: "Linearizable", message: "no order", play: func(s *story) {
			s.opens("f-1", a)
			s.acknowledge("get", lifecycle("f-1", a, nil), 0, 2, s.at, s.at+1)
		}},
		"a read": {play: func(s *story) {
			s.opens("f-1", a)
			s.acknowledge("get", lifecycle("f-1", a, nil), 0, 3, s.at, s.at+1)
		}},
		"a write that changed nothing": {play: func(s *story) {
			s.opens("f-1", a)
			s.acknowledge("update", lifecycle("f-1", a, nil), 3, 3, s.at, s.at+1)
		}},
		"Linearizable: a read of the future": {check: "Linearizable", message: "no order", play: func(s *story) {
			l := lifecycle("f-1", a, []string{first}, first)
			s.acknowledge("get", l, 0, 3, 0, 1)
			s.configure("base", first)
			s.create("f-1", a)
			s.at += time.Second
			s.record(l)
			s.acknowledge("get", l, 0, 2, s.at, s.at+1)
			s.record(lifecycle("f-1", a, []string{first}, first))
		}},
		"I6: a Job runs while it waits": {check: "I6", message: "is not suspended", play: func(s *story) {
			s.opens("f-1", a)
			s.job("j", false, scanner)
		}},

		"Linearizable: a forbidden write": {check: "Linearizable", message: "never allowed", play: func(s *story) {
			s.operation(history.Operation{Client: "meddler", Role: history.RoleMeddler, Verb: "update", Resource: "namespacelifecycles"})
		}},
		"a forbidden write is refused": {play: func(s *story) {
			s.operation(history.Operation{Client: "meddler", Role: history.RoleMeddler, Verb: "update", Resource: "namespacelifecycles", Outcome: history.Refused})
		}},
		"Linearizable: not the first": {check: "Linearizable", message: "although \"three", play: func(s *story) {
			plan := []string{first, "three" + history.InitializerDomain}
			s.configure("base", plan...)
			s.create("f-1", a)
			s.record(lifecycle("f-1", a, plan, plan...))
			s.record(lifecycle("f-1", a, plan, plan[0]))
		}},
		"Linearizable: pending again": {check: "Linearizable", message: "reappeared", play: func(s *story) {
			s.opens("f-1", a)
			s.record(lifecycle("f-1", a, []string{first}, first))
		}},
		"Linearizable: another plan": {check: "Linearizable", message: "the plan changed", play: func(s *story) {
			s.opens("f-1", a)
			l := lifecycle("f-1", a, []string{first})
			l.Spec.Plan = nil
			s.record(l)
		}},
		"Linearizable: removed with participants": {check: "Linearizable", message: "had not cleaned up", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			l := lifecycle("f-1", a, []string{first}, first)
			l.Spec.Finalizers = []v1alpha1.FinalizerName{v1alpha1.FinalizerKubernetes, partner}
			l.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
			event := s.record(l)
			s.event(history.Nsinit, history.Event{Key: event.Key, Deleted: true, Object: event.Object})
		}},
		"Linearizable: the failure was taken back": {check: "Linearizable", message: "taken back", play: func(s *story) {
			s.configure("base", first)
			s.create("f-1", a)
			failed := lifecycle("f-1", a, []string{first}, first)
			failed.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure}
			s.record(failed)
			s.record(lifecycle("f-1", a, []string{first}, first))
		}},
	}
	maps.Copy(tests, tenancyTests())
	checked := map[string]bool{}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			test.play(s)
			found := All(&s.History, Options{NamePrefix: "f-", ReasonDelay: 15 * time.Second})
			checked[test.check] = true
			expectOne(t, found, test.check, test.message)
		})
	}
	for _, checker := range Checkers() {
		if !checked[checker.Name] {
			t.Errorf("no history violates %s", checker.Name)
		}
	}
}

// expectOne expects one violation of a check, or none if its name is empty.
func expectOne(t *testing.T, found []Violation, check, message string) {
	t.Helper()
	switch {
	case check == "" && len(found) > 0:
		t.Errorf("violations of a good history: %v", found)
	case check != "" && len(found) == 0:
		t.Error("no violation was found")
	case check != "" && (len(found) != 1 || found[0].Check != check || !strings.Contains(found[0].String(), message)):
		t.Errorf("want one violation of %s with %q, got %v", check, message, found)
	}
}

// participates opens a namespace with a participant.
func participates(s *story) {
	plan := []string{v1alpha1.InitializerLifecycle, partner}
	s.configure("base", partner)
	s.create("f-1", "uid-a")
	created := s.record(lifecycle("f-1", "uid-a", plan, plan...))
	s.initializerActs("f-1", "uid-a", partner, "result")
	s.initialize(lifecycle("f-1", "uid-a", plan), created.Revision)
	s.open("f-1", "uid-a")
}

// TestStoredHistory: a history that is written and read again is judged the same.
func TestStoredHistory(t *testing.T) {
	s := newStory()
	s.opens("f-1", "uid-a")
	s.create("f-2", "uid-b")
	s.tenantWrites("f-2", "early")
	file := t.TempDir() + "/history.jsonl"
	if err := s.Save(file); err != nil {
		t.Fatal(err)
	}
	loaded, err := history.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	options := Options{NamePrefix: "f-"}
	before, after := All(&s.History, options), All(loaded, options)
	if len(before) == 0 || !slices.EqualFunc(before, after, func(a, b Violation) bool { return a.String() == b.String() }) {
		t.Errorf("before %v, after %v", before, after)
	}
}
