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

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	at := func(d time.Duration) string { return now.Truncate(time.Second).Add(d).Format(time.RFC3339) }
	const full = "2026-01-02T03:05:21Z" // 75 s after now, in the next full second
	since := func(d time.Duration) string { return terminating + at(d) }
	for name, test := range map[string]struct {
		list                 map[string]string
		created              time.Duration // before now
		terminating, removed []string
		want                 map[string]string
		again                string
	}{
		"nothing":                             {created: time.Hour},
		"the list is new":                     {created: 10 * time.Second, want: map[string]string{allNames: at(66 * time.Second)}, again: at(66 * time.Second)},
		"terminating":                         {created: time.Hour, terminating: []string{"a"}, want: map[string]string{"a": since(time.Second)}},
		"still terminating":                   {created: time.Hour, list: map[string]string{"a": since(-time.Hour)}, terminating: []string{"a"}, want: map[string]string{"a": since(-time.Hour)}},
		"terminating, of another clock":       {created: time.Hour, list: map[string]string{"a": since(time.Hour)}, terminating: []string{"a"}, want: map[string]string{"a": since(time.Second)}},
		"terminating, a damaged time":         {created: time.Hour, list: map[string]string{"a": "Terminating"}, terminating: []string{"a"}, want: map[string]string{"a": since(time.Second)}},
		"terminating, the former has time":    {created: time.Hour, list: map[string]string{"a": at(time.Second)}, terminating: []string{"a"}, want: map[string]string{"a": since(time.Second)}},
		"removed":                             {created: time.Hour, list: map[string]string{"a": since(0)}, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed without a trace":             {created: time.Hour, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed again":                       {created: time.Hour, list: map[string]string{"a": at(5 * time.Second)}, removed: []string{"a"}, want: map[string]string{"a": full}, again: full},
		"removed while no instance acted":     {created: time.Hour, list: map[string]string{"a": since(-time.Hour)}, want: map[string]string{"a": full}, again: full},
		"removed, and another is terminating": {created: time.Hour, list: map[string]string{"a": since(-time.Hour)}, removed: []string{"a"}, terminating: []string{"a"}, want: map[string]string{"a": since(time.Second)}},
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
			o := observation{created: now.Add(-test.created), terminating: map[string]deletion{}, removed: sets.New(test.removed...), now: now}
			for _, name := range test.terminating {
				o.terminating[name] = deletion{}
			}
			want, again := next(test.list, o)
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

// TestFull: a list that would be too large because of removed namespaces refuses every name, until all that it leaves out is over.
// It keeps the names of namespaces that exist.
func TestFull(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := observation{created: now.Add(-time.Hour), now: now, removed: sets.New[string](), terminating: map[string]deletion{"exists": {}, "waits": {}}}
	for n := range maxBytes / 60 {
		o.removed.Insert(fmt.Sprintf("%s-%d", strings.Repeat("n", 50), n))
	}
	exists := terminating + now.Add(-time.Minute).Format(time.RFC3339)
	list, again := next(map[string]string{periodKey: "75s", "exists": exists, "other": now.Add(70 * time.Second).Format(time.RFC3339)}, o)
	until := now.Add(75 * time.Second)
	want := map[string]string{periodKey: "75s", "exists": exists, allNames: until.Format(time.RFC3339)}
	if diff := cmp.Diff(want, list); diff != "" || !again.Equal(until) {
		t.Errorf("again at %s, (-want +got):\n%s", again, diff)
	}
	o.removed, o.now = sets.New[string](), now.Add(74*time.Second)
	if list, _ = next(list, o); list[allNames] != want[allNames] {
		t.Errorf("before the time is over, the list is %v", list)
	}
	o.now = until
	if list, again = next(list, o); len(list) != 3 || list["exists"] != exists || !again.IsZero() {
		t.Errorf("when the time is over, the list is %v, again at %s", list, again)
	}
}

// TestCreatorOfDeletion: the room of a portal is that of the users for whom it creates namespaces.
func TestCreatorOfDeletion(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{},
		Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "portal", v1alpha1.AnnotationOnBehalfOf: "alice"}}}
	if got := deletionOf(namespace).creator; got != "alice" {
		t.Errorf("it is of %q", got)
	}
}

// TestRoom: the names of deleted namespaces wait until the list has room for their creator, the oldest first. Namespaces that
// others hold cannot take all of it.
func TestRoom(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := map[string]string{}
	o := observation{created: now.Add(-time.Hour), now: now, terminating: map[string]deletion{}}
	step := func() map[string]int {
		count := map[string]int{}
		list, _ = next(list, o)
		for name := range list {
			count[strings.TrimRight(name, "0123456789")]++
		}
		return count
	}
	const many, size = 2000, 63 + len(terminating) + len("2026-01-02T03:04:05Z")
	remove := func(creator string) {
		o.removed = sets.New[string]()
		for name, d := range o.terminating {
			if _, listed := list[name]; listed && d.creator == creator {
				delete(o.terminating, name)
				o.removed.Insert(name)
			}
		}
	}
	deleted := func(prefix, creator string, count int, last bool) {
		prefix += strings.Repeat("-", 58-len(prefix))
		for n := range count {
			o.terminating[fmt.Sprintf("%s%05d", prefix, n)] = deletion{creator: creator, began: now.Add(time.Duration(n)), last: last}
		}
	}
	about := func(what string, got, bytes int) {
		t.Helper()
		if want := bytes/size + 1; got < want-1 || got > want+1 {
			t.Errorf("%s: %d names are in the list, want about %d", what, got, want)
		}
	}
	key := func(prefix string) string { return prefix + strings.Repeat("-", 58-len(prefix)) }

	deleted("held", "attacker", many, false)
	about("held by others", step()[key("held")], share)
	if oldest := key("held") + "00000"; list[oldest] == "" {
		t.Error("the oldest is not in the list")
	}
	deleted("last", "attacker", many, true)
	about("held by nothing else", step()[key("last")], share)
	deleted("mine", "other", 10, false)
	if got := step()[key("mine")]; got != 10 {
		t.Errorf("%d of 10 names of another creator are in the list", got)
	}
	for n := range 3 {
		deleted(fmt.Sprintf("many%c", 'a'+n), fmt.Sprint(n), many, false)
	}
	deleted("end", "another", 10, true)
	if got := step(); got[key("end")] != 10 {
		t.Errorf("other finalizers block the list: it has %d of 10 names of namespaces that nothing else holds", got[key("end")])
	}
	// Removed namespaces need room, too, and the list never refuses every name.
	for range 5 {
		remove("attacker")
		if step(); list[allNames] != "" {
			t.Fatal("every name is refused")
		}
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
		listed    time.Duration // after the deletion; negative if it is not
		has, want []corev1.FinalizerName
		again     time.Time
	}{
		"alive":                           {alive: true, period: time.Minute, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"deleted":                         {period: time.Minute, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes, own}, again: over},
		"deleted, already emptied":        {period: time.Minute, has: []corev1.FinalizerName{other}, want: []corev1.FinalizerName{other, own}, again: over},
		"deleted, not installed":          {has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"deleted, not listed":             {listed: -1, period: time.Minute, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes, own}},
		"held, not listed":                {listed: -1, period: time.Minute, after: time.Hour, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{own}},
		"held, listed late":               {listed: time.Hour, period: time.Minute, after: time.Hour, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{own}, again: over.Add(time.Hour)},
		"listed late, and over":           {listed: time.Hour, period: time.Minute, after: time.Hour + time.Minute, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{kubernetes}},
		"released, and not listed":        {listed: -1, period: time.Minute, after: time.Hour, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes, own}},
		"uninstalled, not listed":         {listed: -1, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{kubernetes}},
		"held":                            {period: time.Minute, after: 59 * time.Second, has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{own}, again: over},
		"over, not emptied":               {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{kubernetes, own}, want: []corev1.FinalizerName{kubernetes, own}},
		"over, emptied":                   {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{own, other}, want: []corev1.FinalizerName{kubernetes, other}},
		"emptied once more":               {period: time.Minute, after: time.Minute, has: []corev1.FinalizerName{other}, want: []corev1.FinalizerName{other}},
		"listed, and the period is over":  {period: time.Minute, after: time.Hour, has: []corev1.FinalizerName{kubernetes}, want: []corev1.FinalizerName{kubernetes}},
		"uninstalled, emptied":            {has: []corev1.FinalizerName{own}, want: []corev1.FinalizerName{kubernetes}},
		"uninstalled, not emptied so far": {has: []corev1.FinalizerName{kubernetes, own}, want: []corev1.FinalizerName{kubernetes, own}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: test.has}}
			if !test.alive {
				namespace.DeletionTimestamp = &metav1.Time{Time: deleted}
			}
			var listed time.Time
			if test.listed >= 0 {
				listed = deleted.Add(test.listed)
			}
			got, again := nextFinalizers(namespace, listed, test.period, deleted.Add(test.after))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !again.Equal(test.again) {
				t.Errorf("again at %s, want %s", again, test.again)
			}
		})
	}
}
