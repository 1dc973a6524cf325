/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/installation"
)

// examineFailing reports that nsinit fails to take the next step for the namespace.
func (e *examination) examineFailing() {
	condition := e.condition(v1alpha1.ConditionFailing)
	if condition == nil || e.nsinit == down || e.nsinit == missing || e.has(NsinitRefuses) {
		return // found already
	}
	e.found(Finding{Cause: NsinitFailing, State: Stuck, Since: &condition.LastTransitionTime, Message: condition.Message,
		Remedies: []Remedy{
			{Description: "do what the error says; nsinit retries by itself"},
			{Description: "check the installation and its storage", Command: "kubectl nsinit check"},
			{Description: "see what nsinit-controller-manager logs",
				Command: fmt.Sprintf("kubectl --namespace %s logs deployment/%s --tail=50", installation.Namespace, installation.ControllerManager)},
		}})
}

// foundUndeleted reports a terminating namespace whose record is not being deleted, so that no
// participant cleans up.
func (e *examination) foundUndeleted() {
	if e.condition(v1alpha1.ConditionFailing) != nil {
		return // examineFailing reports why
	}
	e.found(Finding{Cause: NsinitFailing, State: e.since(e.Since), Since: e.Since,
		Message: "nsinit-controller-manager has not begun to delete its NamespaceLifecycle of the namespace, so that no participant cleans up",
		Remedies: []Remedy{{Description: "see what nsinit-controller-manager logs",
			Command: fmt.Sprintf("kubectl --namespace %s logs deployment/%s --tail=50", installation.Namespace, installation.ControllerManager)}}})
}
