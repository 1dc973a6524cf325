/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// refusalKind says what refused a deletion.
type refusalKind int

const (
	refusedOtherwise refusalKind = iota
	refusedByWebhook
	webhookUnavailable
	webhookWithoutDryRun
	refusedByPolicy
	// notAllowed: the user may not delete the object. Others may.
	notAllowed
	// unanswered: the time ended before the server answered.
	unanswered
)

// showsNothing reports whether it is not known what refuses a deletion, or whether anything does.
func (k refusalKind) showsNothing() bool {
	return k == webhookWithoutDryRun || k == notAllowed || k == unanswered
}

// refusal is why a deletion did not succeed.
type refusal struct {
	kind refusalKind
	// name is that of the webhook or of the policy, binding that of the policy's binding.
	name, binding string
	message       string
}

// parseRefusal returns what refused a deletion. Only the text of the error says it, in the words
// of k8s.io/apiserver's webhook and policy plugins.
func parseRefusal(err error) refusal {
	r := refusal{message: err.Error()}
	if isUnanswered(err) {
		r.kind = unanswered
		return r
	}
	for _, form := range []struct {
		kind    refusalKind
		pattern string
	}{
		{refusedByWebhook, `admission webhook "([^"]+)" denied the request`},
		{webhookWithoutDryRun, `admission webhook "([^"]+)" does not support dry run`},
		{webhookUnavailable, `failed calling webhook "([^"]+)"`},
		{notAllowed, `ValidatingAdmissionPolicy '(nsinit-gate(?:-namesakes)?)' with binding`}, // the namespace controller may
		{refusedByPolicy, `ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request`},
		{refusedByPolicy, `ValidatingAdmissionPolicy '([^']+)' denied request`},
		{notAllowed, `User "((?:[^"\\]|\\.)*)" cannot (?:delete|patch) resource`},
	} {
		// The name of the object comes first, and a tenant can choose one that looks like the rest.
		if match := regexp.MustCompile(`^(?:\S+ (?:"(?:[^"\\]|\\.)*" )?is forbidden: |Internal error occurred: )?` + form.pattern).FindStringSubmatch(r.message); match != nil {
			r.kind, r.name = form.kind, match[1]
			if len(match) > 2 {
				r.binding = match[2]
			}
			return r
		}
	}
	return r
}

// refused are the objects whose deletion or update one webhook, policy or other check refuses.
type refused struct {
	refusal
	objects []string
}

// refusals returns what was refused. The message is that of the first one.
func refusals(tried []Deletion) []refused {
	var all []refused
	for _, deletion := range tried {
		if deletion.Err == nil {
			continue
		}
		r := parseRefusal(deletion.Err)
		i := slices.IndexFunc(all, func(other refused) bool {
			return other.kind == r.kind && other.name == r.name && other.binding == r.binding
		})
		if i < 0 {
			i, all = len(all), append(all, refused{refusal: r})
		}
		all[i].objects = append(all[i].objects, deletion.Object)
	}
	return all
}

// refusedDeletions reports what refuses the deletion of objects.
func refusedDeletions(o Observation) []Finding { return o.refused(o.Deletions, "the deletion of ") }

// refusedUpdates reports what refuses updates of objects that finalizers hold: it also refuses those of the controllers that
// have to remove the finalizers, unless it treats them differently.
func refusedUpdates(o Observation) []Finding {
	return o.refused(o.Updates, "the removal of finalizers from ")
}

// refused reports what refuses an action on objects.
func (o Observation) refused(tried []Deletion, action string) []Finding {
	var found []Finding
	for _, r := range refusals(tried) {
		what := action + listed(r.objects)
		where, w := o.webhook(r.name)
		switch r.kind {
		case refusedByWebhook:
			found = append(found, o.finding(WebhookRefusesDeletion, Stuck, nil, fmt.Sprintf("the admission webhook %q%s refuses %s: %s", r.name, where, what, r.message), w))
		case webhookUnavailable:
			found = append(found, o.finding(WebhookUnavailable, Stuck, nil, fmt.Sprintf("the admission webhook %q%s reviews %s, and does not answer: %s", r.name, where, what, r.message), w))
		case refusedByPolicy:
			found = append(found, o.finding(PolicyRefusesDeletion, Stuck, nil, fmt.Sprintf("the ValidatingAdmissionPolicy %q refuses %s: %s", r.name, what, r.message), words{"POLICY": {r.name}, "BINDING": {r.binding}}))
		case refusedOtherwise:
			found = append(found, o.finding(DeletionRefused, Stuck, nil, fmt.Sprintf("%s is refused: %s", what, r.message), nil))
		}
	}
	return found
}

// webhook returns where a webhook is configured, in words for a message and for remedies.
func (o Observation) webhook(name string) (string, words) {
	switch configurations := o.Webhooks[name]; len(configurations) {
	case 0:
		return "", words{"WEBHOOKS": {"validatingwebhookconfigurations,mutatingwebhookconfigurations"}}
	case 1:
		return " of " + configurations[0], words{"WEBHOOK": {configurations[0]}, "WEBHOOKS": {configurations[0]}}
	default: // no change is proposed, because it could be made to the wrong one
		return " of " + strings.Join(configurations, " or "), words{"WEBHOOKS": configurations}
	}
}

// failedDeletions reports what the namespace controller could not delete, where no other finding
// explains it.
func failedDeletions(o Observation) []Finding {
	failure := utilnamespaces.TrueCondition(o.conditions(), corev1.NamespaceDeletionContentFailure)
	if failure == nil || !o.emptying() || worst(judge(o, unavailableAPIs, undiscovered, unlistable, refusedDeletions)) == Stuck {
		return nil
	}
	return []Finding{o.finding(ContentDeletionFailed, o.overdue(&failure.LastTransitionTime), &failure.LastTransitionTime,
		"the namespace controller could not delete everything, although you could: "+failure.Message, nil)}
}

// protection reports that a deletion of the namespace itself would be refused. Most users may not
// delete namespaces, which is no finding.
func protection(o Observation) []Finding {
	if o.DeletionErr == nil || parseRefusal(o.DeletionErr).kind.showsNothing() {
		return nil
	}
	state := Healthy
	if o.failed() || o.hypothetical {
		state = Stuck // it has to be deleted
	}
	return []Finding{o.finding(DeletionProtected, state, nil, "a deletion of the namespace would be refused: "+o.DeletionErr.Error(), nil)}
}

// lostClaims notes PersistentVolumeClaims whose volumes do not exist any more.
func lostClaims(o Observation) []Finding {
	var found []Finding
	for namespace, claims := range o.LostClaims {
		var names []string
		for _, claim := range claims {
			names = append(names, "persistentvolumeclaims/"+claim)
		}
		found = append(found, o.finding(ClaimLost, Healthy, nil, fmt.Sprintf("PersistentVolumeClaims of namespace %q are in the phase Lost, because their volumes do not exist: %s. They block no deletion", namespace, listed(claims)),
			words{"WHERE": {namespace}, "CLAIMS": names}))
	}
	return found
}

// frozen reports that an administrator froze the namespace. Then its content cannot be deleted.
func frozen(o Observation) []Finding {
	namespace := o.Namespace.Object
	if namespace == nil {
		return nil
	}
	message, frozen := utilnamespaces.Frozen(namespace)
	if !frozen {
		return nil
	}
	if condition := utilnamespaces.TrueCondition(o.conditions(), v1alpha1.ConditionFrozen); o.partial() && condition != nil {
		message = condition.Message // the annotations are not known
	}
	state := Healthy
	if (o.phase() == Terminating || o.hypothetical) && len(o.remaining()) > 0 {
		state, message = Stuck, message+". Its content is kept until it is unfrozen: "+o.counts()
	}
	return []Finding{o.finding(NamespaceFrozen, state, nil, message, nil)}
}
