/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

const (
	// namespaceControllerLease is the Lease of whoever runs the namespace controller.
	namespaceControllerLease = "kube-controller-manager"
	// leaseGrace is how long a Lease may have run out: the time of two machines differs.
	leaseGrace = 10 * time.Second
)

// releaseCommand takes one finalizer off the namespace's spec, and no other.
func releaseCommand(namespace, finalizer string) string {
	return fmt.Sprintf(`kubectl get namespace %s --output json | jq '.spec.finalizers -= ["%s"]' | kubectl replace --raw /api/v1/namespaces/%s/finalize -f -`,
		namespace, finalizer, namespace)
}

// dropCommand takes one finalizer off the namespace's metadata, and no other.
func dropCommand(namespace, finalizer string) string {
	return fmt.Sprintf(`kubectl get namespace %s --output json | jq '.metadata.finalizers -= ["%s"]' | kubectl replace -f -`, namespace, finalizer)
}

// examineFinalizers looks at the finalizers of the namespace itself.
func (e *examination) examineFinalizers() {
	spec, meta := e.namespace.Spec.Finalizers, e.namespace.Finalizers
	if len(spec) == 0 && len(meta) == 0 {
		e.foundEmptied()
	}
	for _, finalizer := range spec {
		switch finalizer {
		case corev1.FinalizerKubernetes:
			continue
		case v1alpha1.NameReuseFinalizer:
			e.foundHeld()
			continue
		}
		e.found(Finding{Cause: SpecFinalizer, State: e.since(e.Since), Since: e.Since,
			Message: fmt.Sprintf("spec.finalizers has %q: whoever takes part in deletions under this name has not finished", finalizer),
			Remedies: []Remedy{
				{Description: "start or mend the controller that removes it"},
				{Description: "if there is no such controller any more, take off this one name", Command: releaseCommand(e.Namespace, string(finalizer)),
					Risk: "what the controller was to clean up stays behind, perhaps outside the cluster"},
			}})
	}
	for _, finalizer := range meta {
		if finalizer == v1alpha1.NamespaceFinalizer {
			continue // examineRecord reports who it waits for
		}
		message := fmt.Sprintf("metadata.finalizers of the namespace has %q: whoever put it there has not cleaned up yet", finalizer)
		if manager := finalizerManager(e.namespace.ManagedFields, finalizer); manager != "" {
			message += fmt.Sprintf(" (put there by %q)", manager)
		}
		e.found(Finding{Cause: NamespaceFinalizer, State: e.since(e.Since), Since: e.Since, Message: message,
			Remedies: []Remedy{
				{Description: "see what the namespace says of it", Command: fmt.Sprintf("kubectl get namespace %s --output yaml --show-managed-fields", e.Namespace)},
				{Description: "start or mend the controller that removes it"},
				{Description: "if there is no such controller any more, take off this one name",
					Command: dropCommand(e.Namespace, finalizer),
					Risk:    "what the controller was to clean up stays behind, perhaps outside the cluster"},
			}})
	}
}

// foundHeld reports that the component strict-name-reuse holds the namespace, for some minutes at most.
func (e *examination) foundHeld() {
	state := Waiting
	if e.Clock.Since(e.Since.Time) > 10*e.Patience {
		state = Stuck
	}
	e.found(Finding{Cause: SpecFinalizer, State: state, Since: e.Since,
		Message: fmt.Sprintf("spec.finalizers has %q: strict-name-reuse holds the namespace until no earlier request can be under way", v1alpha1.NameReuseFinalizer),
		Remedies: []Remedy{
			{Description: "wait some minutes; nsinit-controller-manager releases it", Command: "kubectl nsinit check"},
			{Description: "if nsinit was uninstalled, take off this one name", Command: releaseCommand(e.Namespace, v1alpha1.NameReuseFinalizer),
				Risk: "requests that are still under way can be stored in the next namespace of this name"},
		}})
}

// foundEmptied reports that the namespace has no finalizers: the namespace controller leaves
// such a namespace alone, and only the next DELETE removes it, whatever is in it.
func (e *examination) foundEmptied() {
	finding := Finding{Cause: FinalizersEmptied, State: Stuck, Since: e.Since,
		Message: "spec.finalizers were empty before the namespace was deleted, so nobody empties it, and it stays until a second DELETE"}
	restore := Remedy{Description: `put the finalizer "kubernetes" back, so that the namespace is emptied and goes`,
		Command: fmt.Sprintf(`kubectl get namespace %s --output json | jq '.spec.finalizers = ["kubernetes"]' | kubectl replace --raw /api/v1/namespaces/%s/finalize -f -`, e.Namespace, e.Namespace)}
	second := Remedy{Description: "delete it once more", Command: "kubectl delete namespace " + e.Namespace}
	if len(e.Remaining) > 0 || e.has(APIUnavailable, NsinitUnavailable, DiscoveryFailed, ListFailed) || len(e.NotExamined) > 0 {
		second.Risk = "whatever is in it stays stored, where nobody sees it, until a namespace of this name is created again"
		finding.Remedies = []Remedy{restore, second}
	} else {
		finding.Remedies = []Remedy{second, restore}
	}
	e.found(finding)
}

// examineController looks whether somebody empties the namespace.
func (e *examination) examineController(ctx context.Context) {
	if !slices.Contains(e.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		if len(e.Findings) == 0 || e.worst() == Healthy {
			e.found(Finding{Cause: NamespaceControllerAtWork, State: e.since(e.Since), Since: e.Since, Message: "everything is done, and the namespace is about to go"})
		}
		return
	}
	e.examineFailures()
	lease, gone := e.lease(ctx, metav1.NamespaceSystem, namespaceControllerLease)
	finding := Finding{Cause: NamespaceControllerSilent, State: Stuck, Since: e.Since,
		Message: "nobody empties the namespace: kube-controller-manager does not seem to run (" + lease + ")",
		Remedies: []Remedy{
			{Description: "see whether kube-controller-manager runs and what it logs",
				Command: "kubectl --namespace kube-system get pods --selector component=kube-controller-manager; kubectl --namespace kube-system get lease " + namespaceControllerLease},
			{Description: "on a control plane that has none, run nsinit-controller-manager with --namespace-termination (docs/operate.md)"},
		}}
	tried := slices.ContainsFunc(e.Conditions, func(c corev1.NamespaceCondition) bool {
		return strings.HasPrefix(string(c.Type), "NamespaceDeletion") && c.Status == corev1.ConditionTrue
	})
	tried = tried || e.condition(corev1.NamespaceContentRemaining) != nil
	waited := e.Clock.Since(e.Since.Time)
	switch {
	case gone:
		e.found(finding)
	case e.worst() == Stuck:
	case (len(e.Remaining) == 0 || e.undeleted > 0) && (waited > 5*e.Patience || waited > e.Patience && !tried):
		e.found(finding)
	default:
		e.found(Finding{Cause: NamespaceControllerAtWork, State: Waiting, Since: e.Since,
			Message: "kube-controller-manager empties the namespace; after a failure it tries again within a minute"})
	}
}

// examineFailures reports what the namespace controller could not delete, where nothing else
// explains it.
func (e *examination) examineFailures() {
	failure := e.condition(corev1.NamespaceDeletionContentFailure)
	if failure == nil || e.has(APIUnavailable, NsinitUnavailable, DiscoveryFailed, ListFailed, WebhookRefusesDeletion, WebhookUnavailable, PolicyRefusesDeletion, DeletionRefused) {
		return
	}
	e.found(Finding{Cause: ContentDeletionFailed, State: e.since(&failure.LastTransitionTime), Since: &failure.LastTransitionTime,
		Message: "the namespace controller could not delete everything, although you could: " + failure.Message,
		Remedies: []Remedy{
			{Description: "wait a minute if you have just mended something: it tries again"},
			{Description: "see who refuses it, by trying as the namespace controller does",
				Command: fmt.Sprintf("kubectl nsinit why %s --as=system:serviceaccount:kube-system:namespace-controller --as-group=system:serviceaccounts --as-group=system:serviceaccounts:kube-system --as-group=system:authenticated", e.Namespace)},
		}})
}

// lease tells of a Lease, and whether whoever held it is gone for sure.
func (e *examination) lease(ctx context.Context, namespace, name string) (string, bool) {
	lease, err := e.Core.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	what := fmt.Sprintf("Lease %s/%s", namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return "there is no " + what, false
	case err != nil:
		e.notExamined(what, err)
		return what + " cannot be read", false
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil:
		return "nobody holds the " + what, true
	}
	return fmt.Sprintf("the %s was renewed last at %s by %s", what, lease.Spec.RenewTime.UTC().Format(time.RFC3339), *lease.Spec.HolderIdentity), e.ranOut(lease)
}

func (e *examination) ranOut(lease *coordinationv1.Lease) bool {
	valid := leaseGrace
	if lease.Spec.LeaseDurationSeconds != nil {
		valid += time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	return e.Clock.Since(lease.Spec.RenewTime.Time) > valid
}
