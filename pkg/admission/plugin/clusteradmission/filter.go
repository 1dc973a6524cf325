/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package clusteradmission

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// client lists and watches one kind.
type client[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// filtered lists and watches the objects that keep accepts. An object that it does not accept any more is deleted.
func filtered[L runtime.Object](clientset kubernetes.Interface, c client[L], keep func(runtime.Object) bool) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := c.List(ctx, options)
			if err != nil {
				return nil, err
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return nil, err
			}
			return list, meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool { return !keep(item) }))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := c.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return mapped(events, func(event watch.Event) (watch.Event, bool) {
				switch {
				case event.Type == watch.Added:
					return event, keep(event.Object)
				case event.Type == watch.Modified && !keep(event.Object):
					event.Type = watch.Deleted
				}
				return event, true
			}), nil
		},
	}, clientset)
}

// mapped changes the events of a watch, and drops those for which change returns false. Unlike watch.Filter, it also ends if its
// client does not read the last event.
func mapped(events watch.Interface, change func(watch.Event) (watch.Event, bool)) watch.Interface {
	results := make(chan watch.Event)
	changed := watch.NewProxyWatcher(results)
	go func() {
		defer close(results)
		defer events.Stop()
		for {
			select {
			case <-changed.StopChan():
				return
			case event, open := <-events.ResultChan():
				if !open {
					return
				}
				event, keep := change(event)
				if !keep {
					continue
				}
				select {
				case <-changed.StopChan():
					return
				case results <- event:
				}
			}
		}
	}()
	return changed
}

// matches says whether a policy or a webhook can match a request to the resources. Bindings can.
func (r *Registrations) matches(object runtime.Object) bool {
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return r.matchesResources(o.Spec.MatchConstraints)
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return r.matchesResources(o.Spec.MatchConstraints)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return slices.ContainsFunc(o.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return slices.ContainsFunc(w.Rules, r.matchesRule)
		})
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return slices.ContainsFunc(o.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return slices.ContainsFunc(w.Rules, r.matchesRule)
		})
	}
	return true
}

// matchesResources says whether a policy can match. Without rules, it matches every resource.
func (r *Registrations) matchesResources(constraints *admissionregistrationv1.MatchResources) bool {
	return constraints == nil || len(constraints.ResourceRules) == 0 ||
		slices.ContainsFunc(constraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return r.matchesRule(rule.RuleWithOperations)
		})
}

// matchesRule says whether a rule matches a request to one of the resources.
func (r *Registrations) matchesRule(rule admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(r.resources, func(resource schema.GroupVersionResource) bool {
		return slices.ContainsFunc([]admission.Operation{admission.Create, admission.Update, admission.Delete}, func(operation admission.Operation) bool {
			matcher := rules.Matcher{Rule: rule, Attr: admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", resource, "", operation, nil, false, nil)}
			return matcher.Matches()
		})
	})
}
