/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// admissionFaults are webhooks of others that hang or are dead, before the gate (mutating) and after
// it (validating).
func admissionFaults() []Fault {
	var all []Fault
	kinds := map[string]string{"before": "a mutating webhook", "after": "a validating webhook"}
	faults := map[string]string{"hanging": " accepts connections, but does not answer", "dead": " refuses connections"}
	for _, where := range []string{"before", "after"} {
		for _, how := range []string{"hanging", "dead"} {
			all = append(all, Fault{
				Name: how + " webhook " + where + " the gate", Description: kinds[where] + faults[how], Hold: 2 * time.Second, Rest: 500 * time.Millisecond,
				Inject: func(ctx context.Context, e *Env) (healer, error) {
					return webhook(ctx, e, where == "before", how == "hanging")
				},
			})
		}
	}
	return all
}

const webhookName = "faults.nsinit.dev"

// webhook registers a webhook that fails open, for everything that is written into namespaces of the
// traffic.
func webhook(ctx context.Context, e *Env, mutating, hanging bool) (healer, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	url := "https://" + listener.Addr().String()
	// One that hangs accepts connections, and never says a word.
	if !hanging {
		if err := listener.Close(); err != nil {
			return nil, err
		}
	}
	ignore, none, seconds, scope := admissionv1.Ignore, admissionv1.SideEffectClassNone, int32(2), admissionv1.NamespacedScope
	config := admissionv1.WebhookClientConfig{URL: &url}
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope},
	}}
	conditions := []admissionv1.MatchCondition{{Name: "traffic", Expression: `request.namespace.startsWith("` + namePrefix + `")`}}
	meta, client := metav1.ObjectMeta{Name: webhookName}, e.Core.AdmissionregistrationV1()
	if mutating {
		_, err = client.MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.MutatingWebhook{{
			Name: webhookName, ClientConfig: config, Rules: rules, FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds,
			MatchConditions: conditions, AdmissionReviewVersions: []string{"v1"},
		}}}, metav1.CreateOptions{})
	} else {
		_, err = client.ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: webhookName, ClientConfig: config, Rules: rules, FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds,
			MatchConditions: conditions, AdmissionReviewVersions: []string{"v1"},
		}}}, metav1.CreateOptions{})
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return func(ctx context.Context) error {
		err := Retry(ctx, func(ctx context.Context) error {
			return errors.Join(
				ignoreNotFound(client.MutatingWebhookConfigurations().Delete(ctx, webhookName, metav1.DeleteOptions{})),
				ignoreNotFound(client.ValidatingWebhookConfigurations().Delete(ctx, webhookName, metav1.DeleteOptions{})))
		})
		_ = listener.Close()
		return err
	}, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Retry calls a function until it succeeds, for a minute.
func Retry(ctx context.Context, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// objectFaults are what users and administrators do.
func objectFaults() []Fault {
	all := []Fault{
		{Name: "deleted exemptions ConfigMap", Description: "the ConfigMap `nsinit-exemptions` is deleted", Hold: time.Second, Rest: time.Second, Inject: deleteConfigMap("nsinit-exemptions")},
		{Name: "restart of kube-apiserver without exemptions", Description: "a kube-apiserver is restarted while the ConfigMap `nsinit-exemptions` does not exist", Programs: []string{apiserver},
			Hold: time.Second, Rest: 500 * time.Millisecond, Inject: both(deleteConfigMap("nsinit-exemptions"), restart(oneOf(apiserver)))},
		{Name: "leader without lease", Description: "the leader of nsinit-controller-manager cannot renew its lease, and its other requests succeed", Programs: []string{nsinitCM},
			Hold: leaseBound + time.Second, Rest: 200 * time.Millisecond, Inject: refuseLease},
		{Name: "deleted storage ConfigMap", Description: "the ConfigMap `nsinit-storage` is deleted", Hold: time.Second, Rest: time.Second, Inject: deleteConfigMap("nsinit-storage")},
		{Name: "unregistered API", Description: "the APIService of nsinit is deleted", Hold: 2 * time.Second, Rest: time.Second, Inject: unregister},
		{Name: "flapping configurations", Description: "a client changes a configuration of each kind ten times without a pause", Rest: time.Second, Inject: flap},
	}
	for _, step := range []string{"no lifecycle", "first turn", "second turn", "open"} {
		when := map[string]string{
			"no lifecycle": "immediately after its creation", "first turn": "when its NamespaceLifecycle exists",
			"second turn": "when its first initializer is done", "open": "when it is open",
		}[step]
		all = append(all, Fault{Name: "namespace deleted at step: " + step, Description: "a namespace is deleted " + when, Rest: 200 * time.Millisecond, Inject: deleteAt(step)})
	}
	return all
}

// deleteConfigMap deletes one of nsinit's ConfigMaps, and creates it again with the same content where
// nothing else did.
func deleteConfigMap(name string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		client := e.Core.CoreV1().ConfigMaps(installation.DefaultNamespace)
		stored, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return recreate(func(ctx context.Context) error {
			_, err := client.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: stored.Labels, Annotations: stored.Annotations}, Data: stored.Data,
			}, metav1.CreateOptions{})
			return err
		}), nil
	}
}

// recreate creates a deleted object again where nothing else did.
func recreate(create func(context.Context) error) healer {
	return func(ctx context.Context) error {
		return Retry(ctx, func(ctx context.Context) error {
			if err := create(ctx); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
}

// both injects a fault and then another. To heal, it ends the second one first.
func both(first, second func(context.Context, *Env) (healer, error)) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		healFirst, err := first(ctx, e)
		if err != nil {
			return healFirst, err
		}
		healSecond, err := second(ctx, e)
		if healSecond == nil {
			return healFirst, err
		}
		return func(ctx context.Context) error { return errors.Join(healSecond(ctx), healFirst(ctx)) }, err
	}
}

// refuseLease refuses that the holder of the lease of nsinit-controller-manager renews it. Another replica can take it.
func refuseLease(ctx context.Context, e *Env) (healer, error) {
	const name = "faults-lease"
	lease, err := e.Core.CoordinationV1().Leases(installation.DefaultNamespace).Get(ctx, installation.ControllerManager, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	client := e.Core.AdmissionregistrationV1()
	heal := func(ctx context.Context) error {
		return Retry(ctx, func(ctx context.Context) error {
			return errors.Join(ignoreNotFound(client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})),
				ignoreNotFound(client.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})))
		})
	}
	_, policyErr := client.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			ResourceNames: []string{lease.Name},
			RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"leases"}}},
		}}},
		Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.spec.?holderIdentity.orValue('') != %q", ptr.Deref(lease.Spec.HolderIdentity, ""))}},
	}}, metav1.CreateOptions{})
	_, bindingErr := client.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{})
	return heal, errors.Join(policyErr, bindingErr)
}

// unregister deletes the APIService of nsinit, as nsinit-controller-manager does during an outage, and creates it again. Meanwhile,
// kube-apiserver answers 404 for every object of nsinit.
func unregister(ctx context.Context, e *Env) (healer, error) {
	apis, err := aggregator.NewForConfig(e.Servers()[0])
	if err != nil {
		return nil, err
	}
	client := apis.ApiregistrationV1().APIServices()
	stored, err := client.Get(ctx, installation.APIService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := client.Delete(ctx, stored.Name, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	return recreate(func(ctx context.Context) error {
		_, err := client.Create(ctx, &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: stored.Name, Labels: stored.Labels}, Spec: stored.Spec}, metav1.CreateOptions{})
		return err
	}), nil
}

// flap changes a configuration of each kind as quickly as it can. Nothing serves the initializers: their deadline ends the wait for them.
func flap(ctx context.Context, e *Env) (healer, error) {
	const name = namePrefix + "burst"
	client := e.Nsinit.NsinitV1alpha1()
	ignore, soon := v1alpha1.Ignore, int32(1)
	rules := []v1alpha1.Rule{{APIGroups: []string{"", "batch"}, APIVersions: []string{"v1"}, Resources: []string{"pods", "jobs"}}}
	for i := range 10 {
		of, ofObjects := &v1alpha1.NamespaceInitializerConfiguration{}, &v1alpha1.InitializerConfiguration{}
		of.Name, ofObjects.Name = name, name
		for _, entry := range []string{"burst-a.faults.example.com", "burst-b.faults.example.com"}[:i%3] {
			of.Initializers = append(of.Initializers, v1alpha1.RegisteredInitializer{Name: entry, FailurePolicy: &ignore, TimeoutSeconds: &soon})
			ofObjects.Initializers = append(ofObjects.Initializers, v1alpha1.Initializer{Name: entry, Rules: rules, FailurePolicy: &ignore, TimeoutSeconds: &soon})
		}
		if err := errors.Join(replace(ctx, client.NamespaceInitializerConfigurations(), of), replace(ctx, client.InitializerConfigurations(), ofObjects)); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		return Retry(ctx, func(ctx context.Context) error {
			return errors.Join(ignoreNotFound(client.NamespaceInitializerConfigurations().Delete(ctx, name, metav1.DeleteOptions{})),
				ignoreNotFound(client.InitializerConfigurations().Delete(ctx, name, metav1.DeleteOptions{})))
		})
	}, nil
}

// configurations is a client of one kind.
type configurations[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}

// replace creates a configuration, or updates it unless another client does.
func replace[T metav1.Object](ctx context.Context, client configurations[T], object T) error {
	stored, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, object, metav1.CreateOptions{})
	} else if err == nil {
		object.SetResourceVersion(stored.GetResourceVersion())
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// createNamespace creates a namespace beside those of the traffic, and returns its name.
func (e *Env) createNamespace(ctx context.Context, purpose string) (string, error) {
	created, err := e.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: e.Prefix + "-" + purpose + "-"}}, metav1.CreateOptions{})
	return created.GetName(), err
}

// deleteAt creates a namespace and deletes it when it has reached a step of its life.
func deleteAt(step string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		namespaces := e.Core.CoreV1().Namespaces()
		created, err := e.createNamespace(ctx, "step")
		if err != nil {
			return nil, err
		}
		reached := func(ctx context.Context) (bool, error) {
			if step == "no lifecycle" {
				return true, nil
			}
			if step == "open" {
				namespace, err := namespaces.Get(ctx, created, metav1.GetOptions{})
				if err != nil {
					return false, nil //nolint:nilerr // tried again
				}
				_, closed := namespace.Labels[v1alpha1.LabelInitializing]
				return !closed, nil
			}
			lifecycle, err := e.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, created, metav1.GetOptions{})
			if err != nil {
				return false, nil //nolint:nilerr // tried again
			}
			done := len(lifecycle.Spec.Plan)
			if lifecycle.Spec.Initializers != nil {
				done -= len(lifecycle.Spec.Initializers.Pending)
			}
			return step == "first turn" || done > 0, nil
		}
		if err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, 30*time.Second, true, reached); err != nil {
			return nil, err
		}
		return func(context.Context) error { return nil }, namespaces.Delete(ctx, created, metav1.DeleteOptions{})
	}
}
