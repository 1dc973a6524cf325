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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// examineRecord looks at nsinit's record of the namespace.
func (e *examination) examineRecord(ctx context.Context) {
	held := e.namespace != nil && slices.Contains(e.namespace.Finalizers, v1alpha1.NamespaceFinalizer)
	waits := e.Phase == Initializing || held
	if e.nsinit == down {
		return // found already, and it explains everything
	}
	if e.nsinit == missing {
		if waits {
			e.foundUninstalled(held)
		}
		return
	}
	record, err := e.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, e.Namespace, metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
		if waits {
			e.foundNoRecord()
		}
	case apierrors.IsNotFound(err): // nobody knows the kind, and APIServices may not be read
		if waits {
			e.foundUninstalled(held)
		}
		return
	case apierrors.IsForbidden(err):
		if waits {
			e.notExamined("nsinit's record of the namespace", err)
			e.foundConditions()
		}
		return
	case err != nil:
		if waits {
			e.foundRefusing(err)
		}
		return
	case e.Phase == Gone:
		e.foundParticipants(record, ParticipantPending, "the namespace is gone, and ")
	case record.Spec.NamespaceUID != e.UID:
		if waits {
			e.foundParticipants(record, FormerIncarnation, "the namespace waits for the end of the former one of its name: ")
		}
	case e.Phase == Terminating && held && record.DeletionTimestamp == nil:
		e.foundUndeleted()
	case e.Phase == Terminating:
		e.foundParticipants(record, ParticipantPending, "")
	default:
		e.foundInitializers(ctx, record)
	}
	if waits {
		e.examineOurController(ctx)
	}
}

// examineOpened checks whether the record of an open namespace agrees that it is open. It does not
// while nsinit-controller-manager has not followed a user who opened the namespace by hand. Users
// who cannot read the record see the namespace only.
func (e *examination) examineOpened(ctx context.Context) {
	if e.nsinit == down || e.nsinit == missing {
		return
	}
	record, err := e.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, e.Namespace, metav1.GetOptions{})
	if err != nil || record.Spec.NamespaceUID != e.UID || record.Spec.Initializers == nil {
		return
	}
	if helper.Failure(record) != nil {
		e.foundInitializers(ctx, record)
		return
	}
	e.found(Finding{Cause: InitializerPending, State: Waiting,
		Message: "the namespace was opened by hand, and nsinit-controller-manager is to skip the initializers that are pending: " + strings.Join(helper.Pending(record), ", ")})
	e.examineOurController(ctx)
}

// foundConditions reports what the namespace's own conditions say, for those who may not read
// its record.
func (e *examination) foundConditions() {
	for _, kind := range []corev1.NamespaceConditionType{v1alpha1.ConditionStalled, v1alpha1.ConditionInitializing} {
		condition := e.condition(kind)
		if condition == nil {
			continue
		}
		finding := Finding{Cause: InitializerPending, State: Waiting, Message: condition.Message, Since: &condition.LastTransitionTime}
		if kind == v1alpha1.ConditionStalled {
			finding.State = Stuck
			finding.Remedies = []Remedy{{Description: "tell those who run the cluster"}}
		}
		e.found(finding)
		return
	}
}

// foundUninstalled reports a namespace that waits for an nsinit that is not there.
func (e *examination) foundUninstalled(held bool) {
	finding := Finding{Cause: NsinitUninstalled, State: Stuck, Remedies: []Remedy{{Description: "install nsinit again, with its configurations"}}}
	if e.Phase == Initializing {
		finding.Message = fmt.Sprintf("the namespace is closed (label %s), and nsinit, which would open it, is not registered in this cluster", v1alpha1.LabelInitializing)
		finding.Remedies = append(finding.Remedies, Remedy{Description: "if it was uninstalled, open the namespace as it is",
			Command: fmt.Sprintf("kubectl label namespace %s %s-", e.Namespace, v1alpha1.LabelInitializing),
			Risk:    "what its initializers were to bring is not there"})
	} else {
		finding.Message = fmt.Sprintf("the namespace waits for nsinit (%s in metadata.finalizers), which is not registered in this cluster", v1alpha1.NamespaceFinalizer)
	}
	if held {
		finding.Remedies = append(finding.Remedies, Remedy{Description: "if it was uninstalled, take nsinit's finalizer off, so that the namespace can go",
			Command: dropCommand(e.Namespace, v1alpha1.NamespaceFinalizer),
			Risk:    "participants that had to clean up after the namespace are not asked any more"})
	}
	e.found(finding)
}

func (e *examination) foundNoRecord() {
	finding := Finding{Cause: RecordMissing, State: e.since(e.Since), Since: e.Since,
		Remedies: []Remedy{{Description: "see what nsinit-controller-manager logs",
			Command: fmt.Sprintf("kubectl --namespace %s logs deployment/%s --tail=50", installation.Namespace, installation.ControllerManager)}}}
	if e.Phase == Terminating {
		finding.Message = fmt.Sprintf("every participant has cleaned up, and nsinit-controller-manager is to take %s out of metadata.finalizers", v1alpha1.NamespaceFinalizer)
	} else {
		finding.Message = "nsinit has not made its record of the namespace yet"
		if condition := e.condition(v1alpha1.ConditionInitializing); condition != nil {
			finding.Message += ": " + condition.Message
		}
	}
	e.found(finding)
}

// foundRefusing reports a server that answers, and refuses to tell.
func (e *examination) foundRefusing(err error) {
	e.found(Finding{Cause: NsinitRefuses, State: Stuck, Message: fmt.Sprintf("nsinit-apiserver refuses to tell of the namespace, which stays as it is meanwhile: %v", err),
		Remedies: []Remedy{
			{Description: "do what the refusal says; docs/operate.md says more of a storage that was lost"},
			{Description: "see what nsinit-apiserver logs", Command: fmt.Sprintf("kubectl --namespace %s logs --selector app.kubernetes.io/name=%s --tail=50", installation.Namespace, installation.APIServer)},
		}})
}

// examineOurController looks whether an instance of nsinit-controller-manager acts, without
// which no gate opens and no finalizer of nsinit leaves.
func (e *examination) examineOurController(ctx context.Context) {
	lease, gone := e.lease(ctx, installation.Namespace, installation.ControllerManager)
	if !gone {
		return
	}
	e.found(Finding{Cause: NsinitControllerDown, State: Stuck, Message: "nsinit-controller-manager does not run (" + lease + "), without which no gate opens and no namespace that waits for a participant goes away",
		Remedies: []Remedy{
			{Description: "see whether it runs and what it logs",
				Command: fmt.Sprintf("kubectl --namespace %s get pods; kubectl --namespace %s logs deployment/%s --tail=50", installation.Namespace, installation.Namespace, installation.ControllerManager)},
			{Description: "start it again", Command: fmt.Sprintf("kubectl --namespace %s rollout restart deployment/%s", installation.Namespace, installation.ControllerManager)},
		}})
}

// foundInitializers reports who has not acted yet.
func (e *examination) foundInitializers(ctx context.Context, record *v1alpha1.NamespaceLifecycle) {
	pending, failed := helper.Pending(record), helper.Failure(record)
	switch {
	case failed != nil:
		e.found(Finding{Cause: InitializationFailed, State: e.since(e.Since), Since: e.Since,
			Message:  "the initialization has failed, and nsinit-controller-manager is to delete the namespace: " + failed.Message,
			Remedies: []Remedy{{Description: "see what the failure was, and fix it before the namespace is created again", Command: describeCommand(e.Namespace)}}})
		e.examineProtection(ctx, Stuck)
		return
	case len(pending) == 0:
		e.found(Finding{Cause: InitializerPending, State: e.since(e.Since), Since: e.Since, Message: "every initializer is done, and nsinit-controller-manager is to open the namespace"})
		return
	}
	first := pending[0]
	said := helper.Entry(record, first)
	finding := Finding{Cause: InitializerPending, State: Waiting, Message: helper.Message(record)}
	if start := record.Spec.Initializers.TurnStartTime; start != nil {
		finding.Since = &metav1.Time{Time: start.Time}
	}
	if said == nil || said.Message == "" {
		finding.Message += ": it has reported nothing"
	}
	if len(pending) > 1 {
		finding.Message += "; after it: " + strings.Join(pending[1:], ", ")
	}
	if apimeta.IsStatusConditionTrue(record.Status.Conditions, v1alpha1.ConditionStalled) {
		finding.State = Stuck
	}
	if first != v1alpha1.InitializerLifecycle {
		finding.Remedies = append(look(e.Namespace, said),
			Remedy{Description: "if it cannot be mended soon, skip it in this namespace",
				Command: fmt.Sprintf("kubectl nsinit skip %s %s", e.Namespace, first),
				Risk:    "the namespace opens without what the initializer was to bring"})
	}
	e.found(finding)
}

// foundParticipants reports who has not cleaned up yet.
func (e *examination) foundParticipants(record *v1alpha1.NamespaceLifecycle, cause Cause, prefix string) {
	if record.DeletionTimestamp == nil {
		return // nsinit-controller-manager is to delete it
	}
	for _, participant := range helper.Participants(record) {
		said := helper.Entry(record, participant)
		e.found(Finding{Cause: cause, State: e.since(record.DeletionTimestamp), Since: record.DeletionTimestamp,
			Message: fmt.Sprintf("%sparticipant %q has not cleaned up yet%s", prefix, participant, reported(said)),
			Remedies: append(look(e.Namespace, said), Remedy{Description: "if there is no such participant any more, act in its place",
				Command: fmt.Sprintf("kubectl nsinit finalize %s %s", e.Namespace, participant),
				Risk:    "what it was to clean up stays behind, perhaps outside the cluster"})})
	}
}

func describeCommand(namespace string) string {
	return "kubectl describe namespacelifecycle " + namespace
}

// reported tells what an initializer last said.
func reported(said *v1alpha1.InitializerStatus) string {
	if said == nil || said.Message == "" {
		return ", it has reported nothing"
	}
	text := fmt.Sprintf(", it says %q", said.Message)
	if said.LastActor != "" {
		text += " (" + said.LastActor + ")"
	}
	return text
}

// look is what shows how an initializer is doing.
func look(namespace string, said *v1alpha1.InitializerStatus) []Remedy {
	remedies := []Remedy{{Description: "see the whole record", Command: describeCommand(namespace)}}
	run := Remedy{Description: "see whether it runs and what it logs"}
	if said != nil {
		if account, ok := strings.CutPrefix(said.LastActor, "system:serviceaccount:"); ok {
			if where, _, ok := strings.Cut(account, ":"); ok {
				run.Command = "kubectl --namespace " + where + " get pods"
			}
		}
	}
	return append(remedies, run)
}
