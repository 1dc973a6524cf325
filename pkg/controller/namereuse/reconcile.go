/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// terminating precedes the time since which the name of a namespace that is being deleted is in the list.
	terminating = "Terminating since "
	// allNames is the key that refuses every name. No namespace has an underscore in its name.
	allNames = "_all"
	// periodKey is the key of the time for which a name is refused.
	periodKey = "_period"
	// defaultPeriod is the period if the ConfigMap has no valid one.
	defaultPeriod = 75 * time.Second
	// maxBytes is the maximum size of the list. The limit of a ConfigMap is 1 MiB.
	maxBytes = 512 << 10
	// early is the size up to which the list gets names of deleted namespaces that other finalizers hold, too. Names of
	// namespaces that only this controller holds get twice as much, so that the former cannot block them. The rest is
	// for namespaces that are removed before they are held.
	early = maxBytes * 3 / 8
	// share is the part of early that one creator gets.
	share = maxBytes / 8
)

// deletion is a namespace that is being deleted.
type deletion struct {
	creator string
	began   time.Time
	// last: no other finalizer holds the namespace.
	last bool
}

// deletionOf returns the deletion of a namespace that is being deleted.
func deletionOf(namespace *corev1.Namespace) deletion {
	return deletion{
		creator: helper.Creator(namespace),
		began:   namespace.DeletionTimestamp.Time,
		last:    len(namespace.Finalizers) == 0 && slices.Equal(namespace.Spec.Finalizers, []corev1.FinalizerName{v1alpha1.NameReuseFinalizer}),
	}
}

// observation is the input for the next content of the list.
type observation struct {
	// created is when the ConfigMap was created. Earlier removals are unknown.
	created time.Time
	// terminating are the namespaces that are being deleted, by name.
	terminating map[string]deletion
	// removed are the namespaces that were removed since the last write of the list.
	removed sets.Set[string]
	now     time.Time
}

// next returns the next content of the list, and the time of the next change without an event, or zero.
func next(list map[string]string, o observation) (want map[string]string, again time.Time) {
	period, _ := periodOf(list)
	latest := roundUp(o.now.Add(period))
	// A time that is invalid, or too far in the future, restarts the period.
	until := func(value string) time.Time {
		if t, err := time.Parse(time.RFC3339, value); err == nil && !t.After(latest) {
			return t
		}
		return latest
	}

	want = map[string]string{}
	size, used := 0, map[string]int{}
	add := func(name, value string) {
		want[name] = value
		size += len(name) + len(value)
	}
	addTerminating := func(name string, since time.Time) {
		add(name, terminating+since.UTC().Format(time.RFC3339))
		used[o.terminating[name].creator] += len(name) + len(want[name])
	}
	now := roundUp(o.now)
	refuse := func(name string, t time.Time) {
		if t.After(o.now) {
			add(name, t.UTC().Format(time.RFC3339))
			if again.IsZero() || t.Before(again) {
				again = t
			}
		}
	}
	// A name stays while its namespace exists: another instance may have released it.
	for name := range o.terminating {
		if value, found := list[name]; found {
			since := listedSince(value)
			if since.IsZero() || since.After(now) || o.removed.Has(name) {
				since = now
			}
			addTerminating(name, since)
		}
	}
	kept := maps.Clone(want)
	for name, value := range list {
		_, exists := o.terminating[name]
		if !exists && !strings.HasPrefix(name, "_") && !o.removed.Has(name) {
			// If it is listed as terminating, the namespace was removed while no instance was running.
			refuse(name, until(value))
		}
	}
	for name := range o.removed {
		if _, exists := o.terminating[name]; !exists {
			refuse(name, latest)
		}
	}
	all := roundUp(o.created.Add(period))
	if value, found := list[allNames]; found && until(value).After(all) {
		all = until(value)
	}
	if size > maxBytes {
		want, again, all = kept, time.Time{}, latest
	}
	refuse(allNames, all)
	// The other namespaces exist until their names have been listed for the period, so their names can wait for room.
	for _, name := range o.waiting(want) {
		parts := 1
		if o.terminating[name].last {
			parts = 2
		}
		if used[o.terminating[name].creator] < parts*share && size < parts*early {
			addTerminating(name, now)
		}
	}
	if value, found := list[periodKey]; found {
		want[periodKey] = value
	}
	return want, again
}

// waiting returns the namespaces that are being deleted and not in the list, in the order of their deletion.
func (o observation) waiting(list map[string]string) []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(o.terminating)), func(name string) bool {
		_, found := list[name]
		return found
	})
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(o.terminating[a].began.Compare(o.terminating[b].began), strings.Compare(a, b))
	})
	return names
}

// listedSince returns since when a name has been in the list as that of a namespace that is being deleted, or zero.
func listedSince(value string) time.Time {
	since, found := strings.CutPrefix(value, terminating)
	if t, err := time.Parse(time.RFC3339, since); found && err == nil {
		return t
	}
	return time.Time{}
}

// nextFinalizers returns the next spec.finalizers of a namespace, and the time of the next change without an
// event, or zero. A request that passed admission before the deletion can be stored after
// kube-controller-manager deleted the content. So NameReuseFinalizer holds the namespace until no such request
// can be running, and until every kube-apiserver refuses its name. Its name has been in the list since a time, or is
// not there if that is zero. Then "kubernetes" replaces the finalizer, so that the content is deleted once more. If the
// component is not installed, the period is 0, and namespaces are released.
func nextFinalizers(namespace *corev1.Namespace, listed time.Time, period time.Duration, now time.Time) (want []corev1.FinalizerName, again time.Time) {
	finalizers := namespace.Spec.Finalizers
	// A namespace whose content a participant holds exists at least until the content is released. The finalizer
	// would make kube-controller-manager try to delete the content, in vain.
	if namespace.DeletionTimestamp == nil || slices.Contains(namespace.Finalizers, v1alpha1.ContentFinalizer) {
		return finalizers, again
	}
	over := namespace.DeletionTimestamp.Time
	if listed.After(over) {
		over = listed
	}
	over = over.Add(period)
	wait := period > 0 && (listed.IsZero() || now.Before(over))
	if wait && !listed.IsZero() {
		again = over
	}
	held, full := slices.Contains(finalizers, v1alpha1.NameReuseFinalizer), slices.Contains(finalizers, corev1.FinalizerKubernetes)
	switch {
	case wait && !held:
		return append(slices.Clone(finalizers), v1alpha1.NameReuseFinalizer), again
	case wait:
		return finalizers, again
	case held && !full:
		want = slices.Clone(finalizers)
		want[slices.Index(want, v1alpha1.NameReuseFinalizer)] = corev1.FinalizerKubernetes
		return want, again
	}
	return finalizers, again // kube-controller-manager removes "kubernetes" next
}

// roundUp returns the next full second. The times of the list are full seconds.
func roundUp(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// periodOf returns for how long a name is refused. It returns the default and an error for an invalid period.
func periodOf(list map[string]string) (time.Duration, error) {
	period, err := time.ParseDuration(list[periodKey])
	switch {
	case err != nil:
		return defaultPeriod, fmt.Errorf("data[%q] of the ConfigMap is %q: set a duration such as 75s; %s is used", periodKey, list[periodKey], defaultPeriod)
	case period <= 0:
		return defaultPeriod, fmt.Errorf("data[%q] of the ConfigMap is %q: set a positive duration such as 75s; %s is used", periodKey, list[periodKey], defaultPeriod)
	}
	return period, nil
}
