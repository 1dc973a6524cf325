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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nsinit/nsinit/pkg/population"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// lifecycleState is what is known of the NamespaceLifecycle of the namespace's name.
type lifecycleState int

const (
	// lifecycleUnknown: nsinit's API is unavailable, which is a finding itself.
	lifecycleUnknown lifecycleState = iota
	// lifecycleUninstalled: nsinit is not installed.
	lifecycleUninstalled
	// lifecycleForbidden: the user may not read it.
	lifecycleForbidden
	// lifecycleRefused: nsinit-apiserver does not serve it.
	lifecycleRefused
	// lifecycleAbsent: it does not exist.
	lifecycleAbsent
	// lifecycleFormer: it belongs to a former namespace of the name.
	lifecycleFormer
	// lifecycleCurrent: it belongs to the namespace.
	lifecycleCurrent
)

func (o Observation) lifecycle() lifecycleState {
	api, _ := o.API()
	served, forbidden := o.Lifecycles()
	switch err := o.Lifecycle.Err; {
	case api.Cause == NsinitUnavailable:
		return lifecycleUnknown
	case api.Cause == NsinitUninstalled, apierrors.IsNotFound(err) && !utilapierrors.IsAbsent(err):
		return lifecycleUninstalled
	case forbidden != nil:
		return lifecycleForbidden
	case served.State == Stuck:
		return lifecycleRefused
	case o.Lifecycle.Object == nil:
		return lifecycleAbsent
	case o.Namespace.Object == nil || o.Lifecycle.Object.Spec.NamespaceUID != o.Namespace.Object.UID:
		return lifecycleFormer
	}
	return lifecycleCurrent
}

// waits reports whether the namespace waits for nsinit: to open it, to release it or, if a user
// opened it, to skip its initializers.
func (o Observation) waits() bool {
	switch o.phase() {
	case Initializing:
		return true
	case Active:
		return o.lifecycle() == lifecycleCurrent && o.Lifecycle.Object.Spec.Initializers != nil
	}
	return o.held()
}

// needsController reports whether the namespace waits for nsinit-controller-manager.
func (o Observation) needsController() bool { return o.waits() && o.lifecycle() >= lifecycleAbsent }

// failed reports whether the initialization of the namespace failed.
func (o Observation) failed() bool {
	return o.lifecycle() == lifecycleCurrent && helper.Failure(o.Lifecycle.Object) != nil
}

// brokenInstallation reports that nsinit is not installed or does not work, if the namespace waits for it.
func brokenInstallation(o Observation) []Finding {
	if !o.waits() {
		return nil
	}
	switch o.lifecycle() {
	case lifecycleUnknown:
		if o.APIService() == nil { // unavailableAPIs judges it
			api, _ := o.API()
			return []Finding{api}
		}
	case lifecycleUninstalled:
		return []Finding{o.uninstalled()}
	case lifecycleRefused:
		refuses, _ := o.Lifecycles()
		return []Finding{refuses}
	}
	if down, _ := o.ControllerManager(); o.needsController() && down.State == Stuck {
		return []Finding{down}
	}
	return nil
}

func (o Observation) uninstalled() Finding {
	message, w := fmt.Sprintf("the namespace waits for nsinit (%s in metadata.finalizers), and ", v1alpha1.NamespaceFinalizer), words{}
	if o.phase() == Initializing {
		message = fmt.Sprintf("the namespace is closed (label %s), and ", v1alpha1.LabelInitializing)
		w["LABEL"] = []string{v1alpha1.LabelInitializing}
	}
	switch {
	case o.contentHeld():
		w["CONTENT"] = []string{v1alpha1.ContentFinalizer}
	case o.held():
		w["FINALIZER"] = []string{v1alpha1.NamespaceFinalizer}
	}
	f := o.finding(NsinitUninstalled, Stuck, nil, message+notInstalled, w)
	// While the content is held, only both finalizers together can be removed, and spec.finalizers put back.
	if lease, _ := judgeLease(o.Controller, o.controllerLease(), o.Time); o.phase() == Terminating && !o.contentHeld() && (lease == leaseLapsed || lease == leaseAbsent) {
		f.fix("remove nsinit's finalizer: nsinit is not installed, and nsinit-controller-manager does not run", noParticipants, o.removeFinalizer(v1alpha1.NamespaceFinalizer))
	}
	return f
}

// missingLifecycle reports that nsinit-controller-manager has not created the NamespaceLifecycle, or
// has not released the namespace after the NamespaceLifecycle was removed.
func missingLifecycle(o Observation) []Finding {
	if !o.waits() || o.lifecycle() != lifecycleAbsent {
		return nil
	}
	message := "nsinit-controller-manager has not created the NamespaceLifecycle yet"
	if o.phase() == Terminating {
		message = fmt.Sprintf("every participant has cleaned up, and nsinit-controller-manager has not removed %s from metadata.finalizers yet", v1alpha1.NamespaceFinalizer)
	} else if condition := utilnamespaces.TrueCondition(o.conditions(), v1alpha1.ConditionInitializing); condition != nil {
		message += ": " + condition.Message
	}
	return []Finding{o.finding(LifecycleMissing, o.overdue(o.since()), o.since(), message, nil)}
}

// initializers reports each initializer that has its turn, or the one that has failed.
func initializers(o Observation) []Finding {
	if o.objectsMissing(v1alpha1.ConditionInitializing) != nil {
		return nil // missingObjects explains it
	}
	if (o.waits() || o.phase() == Terminating && o.partial()) && o.lifecycle() == lifecycleForbidden {
		return tenantView(o)
	}
	phase := o.phase()
	if !o.waits() || o.lifecycle() != lifecycleCurrent || phase == Terminating {
		return nil
	}
	lifecycle := o.Lifecycle.Object
	pending, message := helper.Pending(lifecycle), helper.Message(lifecycle)
	switch {
	case o.failed():
		return []Finding{o.finding(InitializationFailed, o.overdue(o.since()), o.since(), message, nil)}
	case phase == Active:
		return []Finding{o.finding(InitializerPending, Waiting, nil,
			"a user opened the namespace, and nsinit-controller-manager has not skipped the pending initializers yet: "+strings.Join(pending, ", "), nil)}
	case len(pending) == 0:
		return []Finding{o.finding(InitializerPending, o.overdue(o.since()), o.since(), message+", and nsinit-controller-manager has not opened the namespace yet", nil)}
	}
	return o.turns(lifecycle)
}

// tenantView copies a condition of the namespace, for users who may not read its NamespaceLifecycle.
func tenantView(o Observation) []Finding {
	if c := utilnamespaces.TrueCondition(o.conditions(), v1alpha1.ConditionStalled); c != nil && c.Reason != v1alpha1.ReasonFailed {
		cause := InitializerPending
		if o.phase() == Terminating {
			cause = ParticipantPending
		}
		return []Finding{o.finding(cause, Stuck, &c.LastTransitionTime, c.Message, words{"TENANT": {"true"}})}
	}
	if c := utilnamespaces.TrueCondition(o.conditions(), v1alpha1.ConditionInitializing); c != nil && o.phase() != Terminating {
		return []Finding{o.finding(InitializerPending, Waiting, &c.LastTransitionTime, c.Message, nil)}
	}
	return nil
}

// participants reports each participant that has not cleaned up.
func participants(o Observation) []Finding {
	lifecycle, state, phase := o.Lifecycle.Object, o.lifecycle(), o.phase()
	if lifecycle == nil || lifecycle.DeletionTimestamp == nil {
		return nil // nsinit-controller-manager deletes it first
	}
	cause, prefix := ParticipantPending, ""
	switch {
	case phase == Gone && state == lifecycleFormer:
		prefix = "the namespace does not exist any more, and "
	case state == lifecycleFormer && o.waits():
		cause, prefix = FormerIncarnation, "the namespace waits until the former namespace of its name is cleaned up: "
	case phase != Terminating || state != lifecycleCurrent:
		return nil
	}
	var found []Finding
	for _, name := range helper.Participants(lifecycle) {
		entry := helper.Entry(lifecycle, name)
		message := fmt.Sprintf("%sparticipant %q has not cleaned up yet", prefix, name)
		if o.hypothetical {
			message = fmt.Sprintf("participant %q would have to clean up", name)
		}
		a := o.initializerActor(name)
		w, risk := words{"PARTICIPANT": {name}, "PODS": {namespaceOf(a.acted)}}, remains
		if o.holdsContent(name) {
			message += ", and keeps the content of the namespace until then"
			w["HOLDER"], risk = []string{"true"}, remainsAndEmpties
		}
		if entry != nil && entry.Message != "" {
			message += fmt.Sprintf(": %s (%s)", entry.Message, entry.LastActor)
		}
		f := o.controlled(a, cause, o.overdue(lifecycle.DeletionTimestamp), lifecycle.DeletionTimestamp, message, w)
		if f.isDead() {
			f.fix(fmt.Sprintf("release the namespace from participant %q, whose program %q is dead", name, f.Controller.Name), risk, o.release(name))
		}
		found = append(found, f)
	}
	return found
}

// holdsContent reports whether a participant keeps the content of the namespace.
func (o Observation) holdsContent(participant string) bool {
	return o.contentHeld() && o.lifecycle() == lifecycleCurrent && slices.Contains(helper.ContentHolders(o.Lifecycle.Object), participant)
}

// failing reports that nsinit-controller-manager fails to take the next step for the namespace.
func failing(o Observation) []Finding {
	phase, state := o.phase(), o.lifecycle()
	if phase != Initializing && phase != Terminating || state == lifecycleUnknown || state == lifecycleUninstalled || state == lifecycleRefused && o.waits() {
		return nil // another finding explains it
	}
	if c := utilnamespaces.TrueCondition(o.conditions(), v1alpha1.ConditionFailing); c != nil {
		return []Finding{o.finding(NsinitFailing, Stuck, &c.LastTransitionTime, c.Message, words{"FAILING": {"true"}})}
	}
	if phase == Terminating && o.held() && state == lifecycleCurrent && o.Lifecycle.Object.DeletionTimestamp == nil {
		return []Finding{o.finding(NsinitFailing, o.overdue(o.since()), o.since(),
			"nsinit-controller-manager has not deleted the NamespaceLifecycle yet, so no participant cleans up", nil)}
	}
	return nil
}

// degradedPlan notes that the plan of the namespace differs from what the configurations say.
func degradedPlan(o Observation) []Finding {
	if o.lifecycle() != lifecycleCurrent {
		return nil
	}
	condition := meta.FindStatusCondition(o.Lifecycle.Object.Status.Conditions, v1alpha1.ConditionPlanDegraded)
	if condition == nil {
		return nil
	}
	return []Finding{o.finding(PlanDegraded, Healthy, &condition.LastTransitionTime, condition.Message, nil)}
}

// quotas reports the quotas that kube-apiserver does not enforce yet.
func quotas(o Observation) []Finding {
	var found []Finding
	for _, quota := range o.Quotas {
		if missing := population.Uncounted(&quota); len(missing) > 0 {
			found = append(found, o.finding(QuotaNotInForce, o.overdue(&quota.CreationTimestamp), &quota.CreationTimestamp,
				fmt.Sprintf("ResourceQuota %q is not in force: kube-controller-manager has not counted %s yet", quota.Name, strings.Join(missing, ", ")), words{"QUOTA": {quota.Name}}))
		}
	}
	return found
}

// missingObjects reports the objects that an initialized namespace waits for, or was opened without.
func missingObjects(o Observation) []Finding {
	state, condition := Waiting, o.objectsMissing(v1alpha1.ConditionInitializing)
	switch o.phase() {
	case Initializing:
	case Active:
		state, condition = Stuck, o.objectsMissing(v1alpha1.ConditionReady)
	default:
		return nil
	}
	if condition == nil {
		return nil
	}
	return []Finding{o.finding(ObjectsMissing, state, &condition.LastTransitionTime, condition.Message, nil)}
}

// objectsMissing returns a condition of the namespace if it is True because required objects do not exist, or
// nil.
func (o Observation) objectsMissing(kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	condition := utilnamespaces.TrueCondition(o.conditions(), kind)
	if condition == nil || condition.Reason != v1alpha1.ReasonObjectsMissing {
		return nil
	}
	return condition
}
