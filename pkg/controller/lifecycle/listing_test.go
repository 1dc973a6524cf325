/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
)

// TestObserve: which results of lists say that the cache cannot be relied on.
func TestObserve(t *testing.T) {
	away, corrupt := errors.New("away"), unreadableError()
	lifecycle := []v1alpha1.NamespaceLifecycle{*aLifecycle(pending("a"))}
	type result struct {
		err      error
		behind   bool
		unsynced bool
	}
	tests := map[string]struct {
		results []result
		problem error
	}{
		"all is well":                    {[]result{{}, {}}, nil},
		"one failure":                    {[]result{{err: away}}, nil},
		"two failures":                   {[]result{{err: away}, {err: away}}, away},
		"an object cannot be decoded":    {[]result{{err: corrupt}}, corrupt},
		"the cache is behind":            {[]result{{}, {behind: true}}, errBehind},
		"not filled, at first":           {[]result{{unsynced: true}}, nil},
		"not filled":                     {[]result{{unsynced: true}, {unsynced: true}}, errBehind},
		"it is over":                     {[]result{{err: corrupt}, {}}, nil},
		"it is over, but not filled":     {[]result{{err: corrupt}, {unsynced: true}}, corrupt},
		"it is over, but still behind":   {[]result{{err: corrupt}, {behind: true}}, errBehind},
		"failures that do not follow":    {[]result{{err: away}, {}, {err: away}}, nil},
		"the second failure is another":  {[]result{{err: away}, {err: corrupt}}, corrupt},
		"a problem that becomes another": {[]result{{err: corrupt}, {err: away}}, away},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			unsynced := false
			l := listing{synced: func() bool { return !unsynced }}
			var problem error
			for _, r := range test.results {
				unsynced = r.unsynced
				before := l.current()
				var changed bool
				problem, changed = l.observe(lifecycle, r.err, func(_, _ []v1alpha1.NamespaceLifecycle) bool { return r.behind })
				if changed != ((before == nil) != (problem == nil)) {
					t.Errorf("changed is %t from %v to %v", changed, before, problem)
				}
			}
			if !errors.Is(problem, test.problem) || (problem == nil) != (test.problem == nil) || l.settled() != (!unsynced || problem != nil) {
				t.Errorf("the problem is %v, want %v; settled: %t", problem, test.problem, l.settled())
			}
		})
	}
}

func unreadableError() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonStoreReadError, Message: "key /registry/x"}}
}

// TestUnlisted: while NamespaceLifecycles cannot be listed, a namespace whose own can be read goes on,
// one whose own cannot says why, and nothing opens on what the cache says.
func TestUnlisted(t *testing.T) {
	tests := map[string]struct {
		namespace *corev1.Namespace
		live      *v1alpha1.NamespaceLifecycle
		problem   error
		read      error
		writes    []string
		says      string
	}{
		"its turn":                          {namespace(closed), aLifecycle(pending("a")), unreadableError(), nil, []string{"patch namespaces/status"}, "key /registry/x; an administrator"},
		"nothing is pending":                {namespace(closed), aLifecycle(), unreadableError(), nil, []string{"patch namespaces/status"}, ""},
		"its own is corrupt":                {namespace(closed), aLifecycle(), unreadableError(), apierrors.NewInternalError(errors.New("own")), []string{"patch namespaces/status"}, `cannot read NamespaceLifecycle "ns", and retries`},
		"no lifecycle, nothing can be read": {namespace(closed), nil, errors.New("storage was lost"), nil, []string{"patch namespaces/status", "create namespacelifecycles"}, "and retries: no room"},
		"nothing can be read":               {namespace(closed), aLifecycle(), errors.New("storage was lost"), nil, []string{"patch namespaces/status"}, "cannot list NamespaceLifecycles, and retries: storage was lost"},
		"the removal waits":                 {namespace(deleting, emptied), aLifecycle(leaving), errors.New("storage was lost"), nil, []string{"patch namespaces/status"}, ""},
		"it is open":                        {namespace(), aLifecycle(), unreadableError(), nil, nil, ""},
		"it is deleted":                     {namespace(ready, deleting), aLifecycle(), unreadableError(), nil, []string{"patch namespaces/status"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, test.live)
			f.listing.problem = test.problem
			if test.read != nil {
				f.nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.read })
			}
			f.nsinit.PrependReactor("create", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("no room")
			})
			unreadable := strings.Contains(test.says, "retries") || isHeld(test.namespace)
			if err := f.reconcile(t.Context(), "ns"); (err != nil) != unreadable {
				t.Fatalf("its error is %v", err)
			}
			if got := f.writes(); !slices.Equal(got, test.writes) {
				t.Errorf("written: %v", got)
			}
			live, err := f.core.CoreV1().Namespaces().Get(t.Context(), "ns", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if opened := test.says == "" && len(test.writes) > 0; helper.IsClosed(test.namespace) && helper.IsClosed(live) == opened {
				t.Errorf("closed: %t", helper.IsClosed(live))
			}
			if test.says != "" && !slices.ContainsFunc(live.Status.Conditions, func(c corev1.NamespaceCondition) bool {
				return c.Type == v1alpha1.ConditionInitializing && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, test.says)
			}) {
				t.Errorf("it says %v", live.Status.Conditions)
			}
		})
	}
}

// TestUnlistedLifecycles: what the cache shows of a namespace that waits, and two lists do not, is from a
// watch that is behind.
func TestUnlistedLifecycles(t *testing.T) {
	isActive := func(r *v1alpha1.NamespaceLifecycle) { r.Status.Phase = v1alpha1.LifecycleActive }
	inReleasedNamespace := namespace(deleting, emptied)
	tests := map[string]struct {
		namespace    *corev1.Namespace
		cached, live *v1alpha1.NamespaceLifecycle
		behind       bool
	}{
		"a lifecycle that was removed":           {inReleasedNamespace, aLifecycle(leaving, held("p.example.com")), nil, true},
		"a lifecycle that was removed unnoticed": {inReleasedNamespace, aLifecycle(isActive), nil, true},
		"a lifecycle of a lost storage":          {namespace(closed), aLifecycle(pending("a")), nil, true},
		"the gate is about to open":              {namespace(closed), aLifecycle(isActive), nil, false},
		"the list shows it":                      {namespace(closed), aLifecycle(pending("a")), aLifecycle(pending("a")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.namespace, test.live)
			f.cache(nil, test.cached)
			f.listing.synced = func() bool { return true }
			for round := range 3 {
				_, err := f.compareList(t.Context(), f.waiting())
				if want := test.behind && round > 0; errors.Is(err, errBehind) != want {
					t.Errorf("round %d: the problem is %v", round, err)
				}
			}
			if err := f.Lifecycles.Informer().GetStore().Delete(test.cached); err != nil {
				t.Fatal(err)
			}
			if _, err := f.compareList(t.Context(), f.waiting()); err != nil && test.live == nil {
				t.Errorf("the cache caught up: %v", err)
			}
			for _, action := range f.nsinit.Actions() {
				list, ok := action.(clienttesting.ListAction)
				for _, phase := range []v1alpha1.LifecyclePhase{v1alpha1.LifecycleInitializing, v1alpha1.LifecycleActive, v1alpha1.LifecycleTerminating} {
					if want := phase != v1alpha1.LifecycleActive; ok && list.GetListRestrictions().Fields.Matches(fields.Set{"status.phase": string(phase)}) != want {
						t.Errorf("lists show phase %s: %t", phase, !want)
					}
				}
			}
		})
	}
}
