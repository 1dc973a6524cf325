/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
				fmt.Sprintf("spec.finalizers has %q: strict-name-reuse holds the namespace until no earlier request can be in progress, and its list has had room for the name", finalizer), words{"NAMEREUSE": {string(finalizer)}}))
		default:
			found = append(found, o.controlled(actor{finalizer: string(finalizer)}, SpecFinalizer, o.overdue(since), since,
				fmt.Sprintf("spec.finalizers has %q, which %s", finalizer, o.yet("its controller")), words{"FINALIZER": {string(finalizer)}}))
		}
	}
	for _, finalizer := range namespace.Finalizers {
		if finalizer == v1alpha1.NamespaceFinalizer || finalizer == v1alpha1.ContentFinalizer {
			continue // other rules report what it waits for
		}
		message := fmt.Sprintf("metadata.finalizers has %q, which %s", finalizer, o.yet("its controller"))
		a := o.namespaceActor(finalizer)
		if a.manager != "" {
			message += fmt.Sprintf(" (set by %q)", a.manager)
		}
		f := o.controlled(a, NamespaceFinalizer, o.overdue(since), since, message, words{"FINALIZER": {finalizer}})
		if f.isDead() {
			f.fix(fmt.Sprintf("remove the finalizer %q, whose controller %q is dead, from the namespace", finalizer, f.Controller.Name), remains, o.removeFinalizer(finalizer))
		}
		found = append(found, f)
	}
	return found
}

// namespaceActor identifies the program that removes a finalizer from metadata.finalizers of the namespace. For spec.finalizers,
// the API does not record which program added an entry: the list has one field manager, that of the last write.
func (o Observation) namespaceActor(finalizer string) actor {
	return finalizerActor(&o.Namespace.Object.ObjectMeta, target{resource: "namespaces", namespace: o.Name, name: o.Name}, finalizer)
}

// finalizerActor identifies the program that removes a finalizer of an object by the field manager that set it.
func finalizerActor(object *metav1.ObjectMeta, of target, finalizer string) actor {
	known := knownFinalizer(finalizer, object.Namespace)
	a := actor{finalizer: finalizer, target: of, builtIn: known.remover != ""}
	path := fieldpath.MakePathOrDie("metadata", "finalizers", value.NewValueInterface(finalizer))
	for _, entry := range object.ManagedFields {
		fields := fieldpath.NewSet()
		if entry.FieldsV1 != nil && entry.Subresource != "status" && fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) == nil && fields.Has(path) {
			a.manager = entry.Manager
		}
	}
	for _, entry := range object.ManagedFields {
		if a.manager != "" && entry.Manager == a.manager && entry.Time != nil && object.DeletionTimestamp.Before(entry.Time) && a.written.Before(entry.Time) {
			a.written = *entry.Time
		}
	}
	return a
}

// emptiedFinalizers reports that the namespace has no finalizers. The namespace controller ignores
// such a namespace, and only the next DELETE removes it, whatever its content.
func emptiedFinalizers(o Observation) []Finding {
	if o.phase() != Terminating || o.partial() || len(o.Namespace.Object.Spec.Finalizers) > 0 || len(o.Namespace.Object.Finalizers) > 0 {
		return nil
	}
	content := "EMPTY"
	if notExamined, _ := o.unexamined(); len(o.remaining()) > 0 || len(notExamined) > 0 || worst(judge(o, unavailableAPIs, undiscovered, unlistable)) == Stuck {
		content = "CONTENT"
	}
	message := "spec.finalizers were empty before the namespace was deleted, so no controller deletes its content, and the namespace stays until a second DELETE"
	if o.hypothetical {
		message = "spec.finalizers are empty, so no controller would delete the content of the namespace, which would stay until a second DELETE"
	}
	f := o.finding(FinalizersEmptied, Stuck, o.since(), message, words{content: {"true"}})
	f.fix(putBack, "", o.finalize([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
	return []Finding{f}
}

// namespaceController reports whether a controller deletes the content of the namespace, where no
// other finding explains why the namespace remains.
func namespaceController(o Observation) []Finding {
	if o.phase() != Terminating {
		return nil
	}
	others := worst(judge(o, otherRules()...))
	switch {
	case !o.emptying() && others == Healthy && !o.hypothetical:
		message := "everything is done, and the namespace is about to be removed"
		if o.partial() {
			message = "the namespace is being deleted; you may not get it, so it is not known what it waits for"
		}
		return []Finding{o.finding(NamespaceControllerAtWork, o.overdue(o.since()), o.since(), message, nil)}
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
	case others == Stuck, o.hypothetical:
		return nil
	}
	return []Finding{o.finding(NamespaceControllerAtWork, Waiting, o.since(), "kube-controller-manager deletes the content of the namespace; after a failure it retries within a minute", nil)}
}
