/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

const (
	// terminating is the value of a name whose namespace is being deleted.
	terminating = "Terminating"
	// allNames is the key that refuses every name. No namespace has an underscore in its name.
	allNames = "_all"
	// periodKey is the key of the time for which a name is refused.
	periodKey = "_period"
	// defaultPeriod is the period if the ConfigMap has no valid one.
	defaultPeriod = 75 * time.Second
	// maxBytes is the maximum size of the list. The limit of a ConfigMap is 1 MiB.
	maxBytes = 512 << 10
)

// observation is the input for the next content of the list.
type observation struct {
	// created is when the ConfigMap was created. Earlier removals are unknown.
	created time.Time
	// terminating are the namespaces that are being deleted.
	terminating sets.Set[string]
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
	size := 0
	add := func(name, value string) {
		want[name] = value
		size += len(name) + len(value)
	}
	refuse := func(name string, t time.Time) {
		if t.After(o.now) {
			add(name, t.UTC().Format(time.RFC3339))
			if again.IsZero() || t.Before(again) {
				again = t
			}
		}
	}
	for name, value := range list {
		switch {
		case strings.HasPrefix(name, "_"), o.terminating.Has(name), o.removed.Has(name):
		default:
			// The namespace was removed while no instance was running.
			refuse(name, until(value))
		}
	}
	for name := range o.terminating {
		add(name, terminating)
	}
	for name := range o.removed.Difference(o.terminating) {
		refuse(name, latest)
	}
	all := roundUp(o.created.Add(period))
	if value, found := list[allNames]; found && until(value).After(all) {
		all = until(value)
	}
	if size > maxBytes {
		want, again, all = map[string]string{}, time.Time{}, latest
	}
	refuse(allNames, all)
	if value, found := list[periodKey]; found {
		want[periodKey] = value
	}
	return want, again
}

// nextFinalizers returns the next spec.finalizers of a namespace, and the time of the next change without an
// event, or zero. A request that passed admission before the deletion can be stored after
// kube-controller-manager deleted the content. So NameReuseFinalizer holds the namespace until no such request
// can be running. Then "kubernetes" replaces it, so that the content is deleted once more. If the component is
// not installed, the period is 0, and namespaces are released.
func nextFinalizers(namespace *corev1.Namespace, period time.Duration, now time.Time) (want []corev1.FinalizerName, again time.Time) {
	finalizers := namespace.Spec.Finalizers
	// A namespace whose content a participant holds exists at least until the content is released. The finalizer
	// would make kube-controller-manager try to delete the content, in vain.
	if namespace.DeletionTimestamp == nil || slices.Contains(namespace.Finalizers, v1alpha1.ContentFinalizer) {
		return finalizers, again
	}
	over := namespace.DeletionTimestamp.Add(period)
	held, full := slices.Contains(finalizers, v1alpha1.NameReuseFinalizer), slices.Contains(finalizers, corev1.FinalizerKubernetes)
	switch {
	case !held && now.Before(over):
		return append(slices.Clone(finalizers), v1alpha1.NameReuseFinalizer), over
	case held && now.Before(over):
		return finalizers, over
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
