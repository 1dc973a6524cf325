/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestStatusOf: the counts are those of every namespace, and the problems the first ones.
func TestStatusOf(t *testing.T) {
	report := func(name string, outcomes ...population.Outcome) tally {
		return viewOf(name, 0, outcomes...).count(nil, false)
	}
	tallies := []tally{report("a", created, configured, unchanged, conflict, refused), report("b", unchanged, unchanged), report("c", created, ""), report("d")}
	want := &v1alpha1.PopulationRolloutStatus{ObservedGeneration: 7, Namespaces: 4, Current: 2, Checked: 3, ToCreate: 2, ToChange: 1, Unchanged: 3, Conflicts: 1, Refused: 1,
		Problems: []v1alpha1.PopulationProblem{
			{Namespace: "a", Manifest: "m3", Result: v1alpha1.ProblemConflict, Message: "conflict in a"},
			{Namespace: "a", Manifest: "m4", Result: v1alpha1.ProblemRefused, Message: "refused in a"},
		}}
	if diff := cmp.Diff(want, statusOf(7, tallies)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tallies = nil
	for i := range 2 * maxProblems {
		tallies = append(tallies, report(fmt.Sprintf("n%02d", i), refused))
	}
	status := statusOf(7, tallies)
	if len(status.Problems) != maxProblems || status.Problems[maxProblems-1].Namespace != "n09" || status.Refused != 2*maxProblems {
		t.Errorf("got %+v", status)
	}
	if p := problemOf("n", population.Result{Outcome: refused, Message: strings.Repeat("ü", maxMessage+1)}); len(p.Message) > maxMessage || len(p.Message) < maxMessage-1 || !strings.HasSuffix(p.Message, "ü...") {
		t.Errorf("a long message: %q", p.Message)
	}
}

// TestConditionOf: the condition says how far the rollout is, and the next step.
func TestConditionOf(t *testing.T) {
	done := func(count int) (tallies []tally) {
		for range count {
			tallies = append(tallies, tallyOf("done", 0, unchanged))
		}
		return tallies
	}
	obsolete := func(name string) tally {
		v := viewOf(name, 0, unchanged)
		entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "old", APIVersion: "v1", Kind: "ConfigMap", Name: "old", UID: "u", PrunePolicy: v1alpha1.PruneDelete}
		v.results[population.Target{Key: population.KeyOf(entry), Deletes: population.IdentityOf(entry)}] = population.Result{Outcome: population.Deleted}
		return v.count([]v1alpha1.PopulatedObject{entry}, false)
	}
	if status := statusOf(7, []tally{obsolete("a")}); status.ToDelete != 1 || status.Current != 0 {
		t.Errorf("%+v", status)
	}
	for name, test := range map[string]struct {
		rollout v1alpha1.PopulationRolloutType
		tallies []tally
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"reporting": {"", append(done(1), tallyOf("a", 0, "")), metav1.ConditionFalse, "Reporting", "the report describes 1 of 2 namespaces"},
		"reported": {v1alpha1.RolloutReport, append(done(1), viewOf("a", 0, created, configured, conflict, refused).count(nil, false)), metav1.ConditionFalse, "Reported",
			"1 of 2 namespaces have received every object. In the others, objects to create: 1, to change: 1, to delete: 0, in conflict: 1, refused: 1, such as manifest m3 in namespace a: refused in a; to apply, set spec.rollout to Apply"},
		"a complete report": {v1alpha1.RolloutReport, done(2), metav1.ConditionFalse, "Reported", "2 of 2 namespaces have received every object"},
		"progressing":       {v1alpha1.RolloutApply, append(done(2), tallyOf("a", 0, refused), tallyOf("b", 0, refused), tallyOf("c", 0, "")), metav1.ConditionFalse, "Progressing", "2 of 5 namespaces have received every object"},
		"paused": {v1alpha1.RolloutApply, append(done(2), tallyOf("a", 0, refused), tallyOf("b", 0, refused), tallyOf("c", 0, conflict, refused), tallyOf("d", 0, "")), metav1.ConditionFalse, "Paused",
			"2 of 6 namespaces have received every object; paused because 3 namespaces refused objects, such as manifest m0 in namespace a: refused in a: fix the population or the permissions; " +
				"to leave a namespace out, exempt its name or change spec.namespaceSelector; " +
				"nsinit tries these namespaces again every minute, and continues when fewer than 3 refuse objects or a dry run in another one succeeds"},
		"to delete": {v1alpha1.RolloutReport, append(done(1), obsolete("a")), metav1.ConditionFalse, "Reported",
			"1 of 2 namespaces have received every object. In the others, objects to create: 0, to change: 0, to delete: 1, in conflict: 0, refused: 0; to apply, set spec.rollout to Apply"},
		"incomplete": {v1alpha1.RolloutApply, append(done(1), tallyOf("a", 0, conflict), tallyOf("b", 0, refused), tallyOf("c", 0, refused), tallyOf("d", 0, refused)), metav1.ConditionFalse, "Incomplete",
			"1 of 5 namespaces have received every object. In the others, objects in conflict: 1, refused: 3, such as manifest m0 in namespace b: refused in b; " +
				"refused objects are tried again every minute, and conflicts after one to ten minutes, or when you change a label of the population"},
		"complete":     {v1alpha1.RolloutApply, done(3), metav1.ConditionTrue, "Complete", "3 of 3 namespaces have received every object"},
		"no namespace": {v1alpha1.RolloutApply, nil, metav1.ConditionTrue, "Complete", "0 of 0 namespaces have received every object"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: v1alpha1.NamespacePopulationSpec{Scope: v1alpha1.ScopeAll, Rollout: test.rollout}}
			got := conditionOf(p, statusOf(7, test.tallies), test.tallies, tooMany)
			want := metav1.Condition{Type: v1alpha1.ConditionRolledOut, Status: test.status, Reason: test.reason, Message: test.message, ObservedGeneration: 7}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailing: an error is reported if it has lasted, until the namespace is checked, whatever becomes of others.
func TestFailing(t *testing.T) {
	began := time.Unix(0, 0)
	others, failed := tallyOf("others", 0, unchanged), tallyOf("failed", 0, "")
	check := func(after time.Duration, want string) {
		t.Helper()
		if got := failing([]tally{others, failed}, began.Add(after)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	failed.view.set(nil, errors.New("first"), began)
	check(0, "")
	failed.view.set(nil, errors.New("no network"), began.Add(lasting))
	check(lasting, "; namespace failed is tried again after an error: no network")
	others.view.set(nil, nil, began.Add(lasting))
	check(2*lasting, "; namespace failed is tried again after an error: no network")
	failed.view.set(nil, nil, began.Add(2*lasting))
	check(2*lasting, "")
	failed.view.set(nil, errors.New("again"), began.Add(3*lasting))
	check(3*lasting, "")
	check(4*lasting, "; namespace failed is tried again after an error: again")
	failed.recorded = len(failed.view.wanted) // by another controller
	check(4*lasting, "")
}
