/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// namespaceFinalizers reports the finalizers of the namespace itself.
func namespaceFinalizers(o Observation) []Finding {
	if o.phase() != Terminating {
		return nil
	}
	namespace, since := o.Namespace.Object, o.since()
	var found []Finding
	for _, finalizer := range namespace.Spec.Finalizers {
		switch finalizer {
		case corev1.FinalizerKubernetes:
		case v1alpha1.NameReuseFinalizer:
			state := Waiting
			if o.age(since) > 10*o.Patience {
				state = Stuck
			}
			found = append(found, o.finding(SpecFinalizer, state, since,
				fmt.Sprintf("spec.finalizers has %q: strict-name-reuse holds the namespace until no earlier request can be in progress", finalizer), words{"NAMEREUSE": string(finalizer)}))
		default:
			found = append(found, o.finding(SpecFinalizer, o.overdue(since), since,
				fmt.Sprintf("spec.finalizers has %q, which its controller has not removed yet", finalizer), words{"FINALIZER": string(finalizer)}))
		}
	}
	for _, finalizer := range namespace.Finalizers {
		if finalizer == v1alpha1.NamespaceFinalizer {
			continue // other rules report what it waits for
		}
		message := fmt.Sprintf("metadata.finalizers has %q, which its controller has not removed yet", finalizer)
		if manager := finalizerManager(namespace.ManagedFields, finalizer); manager != "" {
			message += fmt.Sprintf(" (set by %q)", manager)
		}
		found = append(found, o.finding(NamespaceFinalizer, o.overdue(since), since, message, words{"FINALIZER": finalizer}))
	}
	return found
}

// emptiedFinalizers reports that the namespace has no finalizers. The namespace controller ignores
// such a namespace, and only the next DELETE removes it, whatever its content.
func emptiedFinalizers(o Observation) []Finding {
	if o.phase() != Terminating || len(o.Namespace.Object.Spec.Finalizers) > 0 || len(o.Namespace.Object.Finalizers) > 0 {
		return nil
	}
	content := "EMPTY"
	if len(o.remaining()) > 0 || len(o.notExamined()) > 0 || worst(judge(o, unavailableAPIs, undiscovered, unlistable)) == Stuck {
		content = "CONTENT"
	}
	return []Finding{o.finding(FinalizersEmptied, Stuck, o.since(),
		"spec.finalizers were empty before the namespace was deleted, so no controller deletes its content, and the namespace stays until a second DELETE", words{content: "true"})}
}

// namespaceController reports whether a controller deletes the content of the namespace, where no
// other finding explains why the namespace remains.
func namespaceController(o Observation) []Finding {
	if o.phase() != Terminating {
		return nil
	}
	others := worst(judge(o, otherRules()...))
	switch {
	case !o.emptying() && others == Healthy:
		return []Finding{o.finding(NamespaceControllerAtWork, o.overdue(o.since()), o.since(), "everything is done, and the namespace is about to be removed", nil)}
	case !o.emptying():
		return nil
	}
	untouched := len(o.remaining()) == 0 || slices.ContainsFunc(o.Deletions, func(deletion Deletion) bool { return deletion.Err == nil })
	tried := slices.ContainsFunc(o.conditions(), func(c corev1.NamespaceCondition) bool {
		return strings.HasPrefix(string(c.Type), "NamespaceDeletion") && c.Status == corev1.ConditionTrue
	}) || utilnamespaces.TrueCondition(o.conditions(), corev1.NamespaceContentRemaining) != nil
	waited := o.age(o.since())
	lease, text := judgeLease(o.NamespaceController, namespaceControllerLease, o.Time)
	switch {
	case lease == leaseLapsed, others != Stuck && untouched && (waited > 5*o.Patience || waited > o.Patience && !tried):
		return []Finding{o.finding(NamespaceControllerSilent, Stuck, o.since(), "no controller deletes the content of the namespace: kube-controller-manager does not seem to run ("+text+")", nil)}
	case others == Stuck:
		return nil
	}
	return []Finding{o.finding(NamespaceControllerAtWork, Waiting, o.since(), "kube-controller-manager deletes the content of the namespace; after a failure it retries within a minute", nil)}
}
