/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	at := func(d time.Duration) string { return now.Truncate(time.Second).Add(d).Format(time.RFC3339) }
	const full = "2026-01-02T03:05:21Z" // 75 s after now, in the next full second
	for name, test := range map[string]struct {
		list                 map[string]string
		created              time.Duration // before now
		terminating, removed []string
		want                 map[string]string
		again                string
	}{
		"nothing":                             {created: time.Hour},
		"the list is new":                     {created: 10 * time.Second, want: map[string]string{allNames: at(66 * time.Second)}, again: at(66 * time.Second)},
		"terminating":                         {created: time.Hour, terminating: []string{"a"}, want: map[string]string{"a": terminating}},
		"still terminating":                   {created: time.Hour, list: map[string]string{"a": terminating}, terminating: []string{"a"}, want: map[string]string{"a": terminating}},
		"removed":                             {created: time.Hour, list: map[string]string{"a": terminating}, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed without a trace":             {created: time.Hour, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed again":                       {created: time.Hour, list: map[string]string{"a": at(5 * time.Second)}, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed while no instance acted":     {created: time.Hour, list: map[string]string{"a": terminating}, want: map[string]string{"a": full}, again: full},
		"removed, and another is terminating": {created: time.Hour, removed: []string{"a"}, terminating: []string{"a"}, want: map[string]string{"a": terminating}},
		"time left":                           {created: time.Hour, list: map[string]string{"a": at(9 * time.Second), "b": at(7 * time.Second)}, want: map[string]string{"a": at(9 * time.Second), "b": at(7 * time.Second)}, again: at(7 * time.Second)},
		"just written":                        {created: time.Hour, list: map[string]string{"a": full}, want: map[string]string{"a": full}, again: full},
		"time over":                           {created: time.Hour, list: map[string]string{"a": at(0), "b": at(-time.Hour)}},
		"a damaged time":                      {created: time.Hour, list: map[string]string{"a": "soon"}, want: map[string]string{"a": full}, again: full},
		"a time of another clock":             {created: time.Hour, list: map[string]string{"a": at(time.Hour)}, want: map[string]string{"a": full}, again: full},
		"another period":                      {created: time.Hour, list: map[string]string{periodKey: "10s"}, removed: []string{"a"}, want: map[string]string{periodKey: "10s", "a": at(11 * time.Second)}, again: at(11 * time.Second)},
		"a period that is none":               {created: time.Hour, list: map[string]string{periodKey: "-1s"}, removed: []string{"a"}, want: map[string]string{periodKey: "-1s", "a": full}, again: full},
		"every name, for a while yet":         {created: time.Hour, list: map[string]string{allNames: at(8 * time.Second)}, want: map[string]string{allNames: at(8 * time.Second)}, again: at(8 * time.Second)},
		"every name, and that is over":        {created: time.Hour, list: map[string]string{allNames: at(-time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			want, again := next(test.list, observation{created: now.Add(-test.created), terminating: sets.New(test.terminating...), removed: sets.New(test.removed...), now: now})
			if test.want == nil {
				test.want = map[string]string{}
			}
			if diff := cmp.Diff(test.want, want); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := again.UTC().Format(time.RFC3339); !again.IsZero() && got != test.again || again.IsZero() && test.again != "" {
				t.Errorf("again at %s, want %q", again, test.again)
			}
		})
	}
}

// TestFull: a list that would be too large refuses every name, until all that it leaves out is over.
func TestFull(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := observation{created: now.Add(-time.Hour), now: now, removed: sets.New[string](), terminating: sets.New[string]()}
	for n := range maxBytes / 60 {
		o.removed.Insert(fmt.Sprintf("%s-%d", strings.Repeat("n", 50), n))
	}
	list, again := next(map[string]string{periodKey: "75s", "other": now.Add(70 * time.Second).Format(time.RFC3339)}, o)
	until := now.Add(75 * time.Second)
	want := map[string]string{periodKey: "75s", allNames: until.Format(time.RFC3339)}
	if diff := cmp.Diff(want, list); diff != "" || !again.Equal(until) {
		t.Errorf("again at %s, (-want +got):\n%s", again, diff)
	}
	o.removed, o.now = sets.New[string](), now.Add(74*time.Second)
	if list, _ = next(list, o); list[allNames] != want[allNames] {
		t.Errorf("before the time is over, the list is %v", list)
	}
	o.now = until
	if list, again = next(list, o); len(list) != 1 || !again.IsZero() {
		t.Errorf("when the time is over, the list is %v, again at %s", list, again)
	}
}

// TestNextFinalizers: a namespace is held from its deletion until the period is over and it was emptied, and is
// then emptied once more.
func TestNextFinalizers(t *testing.T) {
	const kubernetes, own, other = "kubernetes", v1alpha1.NameReuseFinalizer, v1alpha1.NamespaceFinalizer
	deleted := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	over := deleted.Add(time.Minute)
	for name, test := range map[string]struct {
		alive     bool
		period    time.Duration
		after     time.Duration
		has, want []corev1.FinalizerName
		again     time.Time
	}{
		"alive":                           {alive: true, period: time.Minute, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"deleted":                         {period: time.Minute, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes, own}, again: over},
		"deleted, already emptied":        {period: time.Minute, has: []corev1.FinalizerName{other}, want: []corev1.FinalizerName{other, own}, again: over},
		"deleted, not installed":          {has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"held":                            {period: time.Minute, after: 59 * time.Second, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{own}, again: over},
		"over, not emptied":               {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{kubernetes, own}, want: []corev1.FinalizerName{kubernetes, own}},
		"over, emptied":                   {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{own, other}, want: []corev1.FinalizerName{kubernetes, other}},
		"emptied once more":               {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{other}, want: []corev1.FinalizerName{other}},
		"found when the period was over":  {period: time.Minute, after: time.Hour, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"uninstalled, emptied":            {has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{kubernetes}},
		"uninstalled, not emptied so far": {has: []corev1.FinalizerName{kubernetes, own}, want: []corev1.FinalizerName{kubernetes, own}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: test.has}}
			if !test.alive {
				namespace.DeletionTimestamp = &metav1.Time{Time: deleted}
			}
			got, again := nextFinalizers(namespace, test.period, deleted.Add(test.after))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !again.Equal(test.again) {
				t.Errorf("again at %s, want %s", again, test.again)
			}
		})
	}
}
