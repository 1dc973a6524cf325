/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/test/faults/history"
)

// TestHeld: I6 judges the whole life of pods and Jobs.
func TestHeld(t *testing.T) {
	tests := map[string]struct {
		play func(*story)
		// before is what happens before the namespace f-1 opens. Nil: the configuration is registered.
		before  func(*story)
		message string
	}{
		"a pod and a Job that run": {play: func(s *story) {
			s.initialized("p")
			s.job("j", true, scanner)
			job := s.job("j", false)
			s.removesItself(scanner, job)
			s.pod("of-j", "", scanner, approver).Pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID}}
			s.removesItself(scanner, s.pod("of-j", "", approver))
			s.removesItself(approver, s.pod("of-j", ""))
			s.pod("of-j", "node")
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"a pod with a node that waits": {message: `has node "node" and waits for`, play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.pod("p", "node", scanner, approver)
		}},
		"a pod that runs and waits": {message: "is Running and waits for", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.pod("p", "", scanner, approver).Pod.Status.Phase = corev1.PodRunning
		}},
		"a Job that is resumed": {message: "is not suspended and waits for", play: func(s *story) {
			s.job("j", true, scanner)
			s.job("j", false, scanner)
		}},
		"a Job with a pod": {message: `was stored while its Job "j" waits for`, play: func(s *story) {
			job := s.job("j", true, scanner)
			s.pod("p", "", scanner, approver).Pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID}}
		}},
		"a pod without the second gate": {message: "but the configurations require", play: func(s *story) { s.pod("p", "", scanner) }},
		"a Job without a label":         {message: "but the configurations require", play: func(s *story) { s.job("j", false) }},
		"a forged gate":                 {message: "but the configurations require", play: func(s *story) { s.pod("p", "", "forged.example.com", scanner, approver) }},
		"gates in another order":        {message: "but the configurations require", play: func(s *story) { s.pod("p", "", approver, scanner) }},
		"a configuration that is in force too late": {play: func(s *story) {
			s.registration(1, true)
			s.pod("p", "")
		}, before: func(s *story) { s.registration(1, false) }},
		"a pod that is created when the configuration is in force": {message: "but the configurations require", play: func(s *story) {
			s.registration(1, true)
			began := s.at
			object := s.pod("p", "")
			s.operation(history.Operation{Verb: "create", Resource: "pods", UID: object.UID, Start: began + time.Second, End: s.at})
		}, before: func(s *story) { s.registration(1, false) }},
		"a pod of a Job that is created when the configuration is in force": {message: `"of-j" was stored and waits for`, play: func(s *story) {
			s.registration(1, true)
			began := s.at
			job := s.job("j", true, scanner)
			s.operation(history.Operation{Verb: "create", Resource: "jobs", UID: job.UID, Start: began + time.Second, End: s.at})
			s.removesItself(scanner, s.job("j", false))
			s.pod("of-j", "").Pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID}}
		}, before: func(s *story) { s.registration(1, false) }},
		"a configuration that changes": {play: func(s *story) {
			s.pod("p", "")
			s.registration(2, true)
		}},
		"the second initializer is first": {message: "more changed than the removal of the first one", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.removesItself(approver, s.pod("p", "", scanner))
		}},
		"both are removed": {message: "more changed than the removal of the first one", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.removesItself(scanner, s.pod("p", ""))
		}},
		"an initializer is added": {message: "more changed than the removal of the first one", play: func(s *story) {
			s.initialized("p")
			s.pod("p", "", scanner)
		}},
		"a meddler removes an initializer": {message: `did not remove itself: "meddler" did`, play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.removesItself("meddler", s.pod("p", "", approver))
		}},
		"a meddler removes a label": {message: `did not remove itself: "meddler" did`, play: func(s *story) {
			s.job("j", true, scanner)
			s.removesItself("meddler", s.job("j", false))
		}},
		"no client removes an initializer": {message: "did not remove itself", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.pod("p", "", approver)
		}},
		"initializers of a configuration that changes": {play: func(s *story) {
			s.flapping(1, "a", "b")
			s.flapping(2)
			s.pod("p", "", scanner, approver, "a", "b")
			s.pod("p", "", scanner, approver, "b")
			s.removesItself(scanner, s.pod("p", "", approver, "b"))
			s.pod("p", "", approver)
			s.pod("q", "", scanner, approver)
		}},
		"a meddler removes one of a configuration that changes": {message: `did not remove itself: "meddler" did`, play: func(s *story) {
			s.flapping(1, "a")
			s.flapping(2)
			s.pod("p", "", scanner, approver, "a")
			s.removesItself("meddler", s.pod("p", "", scanner, approver))
		}},
		"a meddler removes a label of a configuration that changes": {message: `did not remove itself: "meddler" did`, play: func(s *story) { s.unlabelled("patch", "a") }},
		"a request for another label of a Job at the same time":     {play: func(s *story) { s.unlabelled("patch", "ab") }},
		"a meddler replaces a Job":                                  {message: `did not remove itself: "meddler" did`, play: func(s *story) { s.unlabelled("update", "ab") }},
		"a later request that changes nothing": {play: func(s *story) {
			s.flapping(1, "a")
			s.flapping(2)
			s.pod("p", "", scanner, approver, "a")
			object := s.pod("p", "", scanner, approver)
			s.tick()
			s.operation(history.Operation{Client: "meddler", Verb: "patch", Resource: "pods", Namespace: object.Namespace, Name: object.Name, UID: object.UID,
				ResourceVersion: s.kube, Start: s.at, End: s.at})
		}},
		"one of a configuration that changes is added": {message: "more changed than the removal of the first one", play: func(s *story) {
			s.flapping(1, "a")
			s.flapping(2)
			s.pod("p", "", scanner, approver)
			s.pod("p", "", scanner, approver, "a")
		}},
		"a pod that waits for too long for one of a configuration that changes": {message: `still waits for ["a"]`, play: func(s *story) {
			s.flapping(1, "a")
			s.flapping(2)
			s.pod("p", "", scanner, approver, "a")
			s.removesItself(scanner, s.pod("p", "", approver, "a"))
			s.removesItself(approver, s.pod("p", "", "a"))
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"an answer is lost": {play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.operation(history.Operation{Client: scanner, Verb: "patch", Resource: "pods", Namespace: "f-1", Name: "p", Outcome: history.Unknown, Start: s.at, End: s.at + 1})
			s.pod("p", "", approver)
		}},
		"a lost answer to another client": {message: "did not remove itself", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.operation(history.Operation{Client: "meddler", Verb: "patch", Resource: "pods", Namespace: "f-1", Name: "p", Outcome: history.Unknown, Start: s.at, End: s.at + 1})
			s.pod("p", "", approver)
		}},
		"a lost request after the removal": {message: "did not remove itself", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.pod("p", "", approver)
			s.operation(history.Operation{Client: scanner, Verb: "patch", Resource: "pods", Namespace: "f-1", Name: "p", Outcome: history.Unknown, Start: s.at, End: s.at + 1})
		}},
		"a pod that waits for too long": {message: "still waits for", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"a pod without a node": {message: "has no node, 1s after the last fault", play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.removesItself(scanner, s.pod("p", "", approver))
			s.removesItself(approver, s.pod("p", ""))
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
			s.pod("p", "node")
		}},
		"a Job that does not start": {message: "did not start", play: func(s *story) {
			s.job("j", true, scanner)
			job := s.job("j", false)
			job.Job.Status.StartTime = nil
			s.removesItself(scanner, job)
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"a pod that is deleted": {play: func(s *story) {
			s.pod("p", "", scanner, approver)
			s.remove("p", "uid-of-p")
			s.pod("q", "", scanner, approver).Deleting = true
			s.mark(history.MarkQuiet)
			s.mark(history.MarkSettled)
		}},
		"a pod of another namespace": {play: func(s *story) { s.pod("p", "").Namespace = "default" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			if test.before == nil {
				test.before = (*story).register
			}
			test.before(s)
			s.opens("f-1", "uid-a")
			test.play(s)
			expectOne(t, All(&s.History, Options{NamePrefix: "f-", ReasonDelay: 15 * time.Second}), map[bool]string{true: "I6"}[test.message != ""], test.message)
		})
	}
}
