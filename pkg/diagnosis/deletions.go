/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// triesEach bounds the deletions that are tried of one resource.
const triesEach = 50

// refusalKind is who refused a deletion.
type refusalKind int

const (
	refusedOtherwise refusalKind = iota
	refusedByWebhook
	webhookUnavailable
	webhookWithoutDryRun
	refusedByPolicy
	// notAllowed: whoever asks may not delete it, which says nothing of others.
	notAllowed
)

// refusal is why a deletion did not succeed.
type refusal struct {
	kind refusalKind
	// name is that of the webhook or of the policy, binding that of the policy's binding.
	name, binding string
	message       string
}

// parseRefusal reads who refused from the error. Only the text says it: these are the words
// of k8s.io/apiserver's webhook and policy plugins.
func parseRefusal(err error) refusal {
	r := refusal{message: err.Error()}
	for _, form := range []struct {
		kind    refusalKind
		pattern string
	}{
		{refusedByWebhook, `admission webhook "([^"]+)" denied the request`},
		{webhookWithoutDryRun, `admission webhook "([^"]+)" does not support dry run`},
		{webhookUnavailable, `failed calling webhook "([^"]+)"`},
		{refusedByPolicy, `ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request`},
		{refusedByPolicy, `ValidatingAdmissionPolicy '([^']+)' denied request`},
		{notAllowed, `User "([^"]*)" cannot delete resource`},
	} {
		if match := regexp.MustCompile(form.pattern).FindStringSubmatch(r.message); match != nil {
			r.kind, r.name = form.kind, match[1]
			if len(match) > 2 {
				r.binding = match[2]
			}
			return r
		}
	}
	return r
}

// refusals are the objects whose deletion was refused by one and the same.
type refusals struct {
	refusal
	objects []string
}

// examineDeletions tries, with dry-run, to delete what nobody deletes.
func (e *examination) examineDeletions(ctx context.Context, all []scanned) {
	type who struct {
		kind    refusalKind
		name    string
		binding string
	}
	found := map[who]*refusals{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(resourcesAtOnce)
	for _, s := range all {
		tries := 0
		for _, object := range s.objects {
			if object.DeletionTimestamp != nil {
				continue
			}
			if tries++; tries > triesEach {
				break
			}
			group.Go(func() error {
				err := e.Metadata.Resource(s.resource).Namespace(e.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
					DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &object.UID}})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					e.undeleted++
				case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone by now
				default:
					r := parseRefusal(err)
					key := who{r.kind, r.name, r.binding}
					if found[key] == nil {
						found[key] = &refusals{refusal: r}
					}
					found[key].objects = append(found[key].objects, resourceName(s.resource)+"/"+object.Name)
				}
				return nil
			})
		}
		if tries > triesEach {
			e.NotExamined = append(e.NotExamined, fmt.Sprintf("whether more than %d of the %s could be deleted: only so many are tried", triesEach, resourceName(s.resource)))
		}
	}
	_ = group.Wait()
	var sorted []*refusals
	for _, r := range found {
		slices.Sort(r.objects)
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b *refusals) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.binding, b.binding))
	})
	for _, r := range sorted {
		e.foundRefusal(ctx, r)
	}
}

func (e *examination) foundRefusal(ctx context.Context, r *refusals) {
	objects := listed(r.objects)
	switch r.kind {
	case notAllowed:
		e.NotExamined = append(e.NotExamined, fmt.Sprintf("whether %s could be deleted: %s", objects, r.message))
	case webhookWithoutDryRun:
		e.NotExamined = append(e.NotExamined, fmt.Sprintf("whether %s could be deleted: %s; see it with: %s", objects, r.message, e.webhooks(ctx, r.name).show))
	case refusedByWebhook:
		hook := e.webhooks(ctx, r.name)
		e.found(Finding{Cause: WebhookRefusesDeletion, State: Stuck,
			Message: fmt.Sprintf("the admission webhook %q%s refuses the deletion of %s: %s", r.name, hook.where, objects, r.message),
			Remedies: []Remedy{
				{Description: "do what the refusal asks for"},
				{Description: "see who answers, and for what it is asked", Command: hook.show},
				{Description: "exempt this namespace in the webhook's namespaceSelector", Command: hook.edit, Risk: "nothing is checked in this namespace any more"},
			}})
	case webhookUnavailable:
		hook := e.webhooks(ctx, r.name)
		e.found(Finding{Cause: WebhookUnavailable, State: Stuck,
			Message: fmt.Sprintf("the admission webhook %q%s is asked about the deletion of %s, and does not answer: %s", r.name, hook.where, objects, r.message),
			Remedies: []Remedy{
				{Description: "see which service it is, and start or mend it", Command: hook.show},
				{Description: "if it was uninstalled, remove what was left of it", Command: hook.remove, Risk: "what it checked or changed is not checked or changed any more"},
			}})
	case refusedByPolicy:
		binding := r.binding
		remedies := []Remedy{
			{Description: "do what the refusal asks for"},
			{Description: "see the policy", Command: "kubectl get validatingadmissionpolicy " + r.name + " --output yaml"},
		}
		if binding != "" {
			remedies = append(remedies, Remedy{Description: "exempt this namespace in the binding, or remove it", Command: "kubectl edit validatingadmissionpolicybinding " + binding,
				Risk: "what the policy guards is not guarded there any more"})
		}
		e.found(Finding{Cause: PolicyRefusesDeletion, State: Stuck,
			Message: fmt.Sprintf("the ValidatingAdmissionPolicy %q refuses the deletion of %s: %s", r.name, objects, r.message), Remedies: remedies})
	default:
		e.found(Finding{Cause: DeletionRefused, State: Stuck, Message: fmt.Sprintf("the deletion of %s is refused: %s", objects, r.message),
			Remedies: []Remedy{{Description: "do what the refusal asks for"}}})
	}
}

// webhook says where an admission webhook is registered.
type webhook struct {
	where, show, edit, remove string
}

// webhooks finds the configuration that registers a webhook.
func (e *examination) webhooks(ctx context.Context, name string) webhook {
	at := func(kind, configuration string) webhook {
		return webhook{
			where:  fmt.Sprintf(" of %s %s", kind, configuration),
			show:   fmt.Sprintf("kubectl get %s %s --output yaml", kind, configuration),
			edit:   fmt.Sprintf("kubectl edit %s %s", kind, configuration),
			remove: fmt.Sprintf("kubectl delete %s %s", kind, configuration),
		}
	}
	client := e.Core.AdmissionregistrationV1()
	validating, err := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, configuration := range validating.Items {
			for _, hook := range configuration.Webhooks {
				if hook.Name == name {
					return at("validatingwebhookconfiguration", configuration.Name)
				}
			}
		}
	}
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, configuration := range mutating.Items {
			for _, hook := range configuration.Webhooks {
				if hook.Name == name {
					return at("mutatingwebhookconfiguration", configuration.Name)
				}
			}
		}
	}
	return webhook{show: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations --output yaml"}
}
