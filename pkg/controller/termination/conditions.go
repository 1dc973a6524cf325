/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package termination

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// describe sets the conditions that kube-controller-manager sets, and says whether one changed. A
// condition that is True names what blocks the deletion.
func (f *content) describe(namespace *corev1.Namespace, now time.Time) bool {
	changed := false
	for _, c := range []struct {
		kind         corev1.NamespaceConditionType
		wrong        string
		bad          string
		good, normal string
	}{
		{corev1.NamespaceDeletionDiscoveryFailure, text(f.discovery), "DiscoveryFailed", "ResourcesDiscovered", "All resources successfully discovered"},
		{corev1.NamespaceDeletionGVParsingFailure, text(f.versions), "GroupVersionParsingFailed", "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		{corev1.NamespaceDeletionContentFailure, text(f.deletion), "ContentDeletionFailed", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		{corev1.NamespaceContentRemaining, f.remains(), "SomeResourcesRemain", "ContentRemoved", "All content successfully removed"},
		{corev1.NamespaceFinalizersRemaining, f.held(), "SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
	} {
		want := corev1.NamespaceCondition{Type: c.kind, Status: corev1.ConditionFalse, Reason: c.good, Message: c.normal, LastTransitionTime: metav1.NewTime(now)}
		if c.wrong != "" {
			want.Status, want.Reason, want.Message = corev1.ConditionTrue, c.bad, c.wrong
		}
		changed = utilnamespaces.SetCondition(&namespace.Status.Conditions, want) || changed
	}
	return changed
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// remains returns the number of objects that are left, by resource.
func (f *content) remains() string {
	counts := map[string]int{}
	for resource, count := range f.remaining {
		counts[resource.Resource+"."+resource.Group] += count
	}
	return list("Some resources are remaining: ", counts, "%s has %d resource instances")
}

// held returns the number of objects that are left, by finalizer.
func (f *content) held() string {
	return list("Some content in the namespace has finalizers remaining: ", f.finalizers, "%s in %d resource instances")
}

func list(prefix string, counts map[string]int, format string) string {
	var parts []string
	for name, count := range counts {
		parts = append(parts, fmt.Sprintf(format, name, count))
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return prefix + strings.Join(parts, ", ")
}
