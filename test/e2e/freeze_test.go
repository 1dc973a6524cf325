//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// freezing writes what freezes a namespace.
func freezing(by, reason string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"},"annotations":{%q:%q,%q:%q}}}`,
		v1alpha1.LabelFrozen, v1alpha1.AnnotationFrozenBy, by, v1alpha1.AnnotationFrozenReason, reason)
}

// TestFreeze: while a namespace is frozen, its tenants read, and kube-apiserver refuses their writes and its deletion. Only
// users with the verb freeze freeze and unfreeze it. Its conditions, an event and the audit log report both.
func TestFreeze(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	c.User(t, "e2e-frozen", framework.Everything())
	tenant := kubernetes.NewForConfigOrDie(c.As("e2e-frozen"))
	if err := framework.WriteConfigMap(t.Context(), tenant, namespace); err != nil {
		t.Fatal(err)
	}
	_, from := c.AuditSince(t, 0)

	c.RunDocumented(t, "Freeze a namespace", map[string]string{"NAMESPACE": namespace})
	const why = "incident 4711"
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, "True/Frozen", `user "kubernetes-admin" froze the namespace: `+why)
	says := []string{`namespace "` + namespace + `" is frozen by kubernetes-admin and cannot be written to: ` + why, "kubectl nsinit unfreeze " + namespace}
	framework.Eventually(t, "a tenant cannot write", func(ctx context.Context) error {
		return framework.RefusedBy("nsinit-freeze", framework.WriteConfigMap(ctx, tenant, namespace), says...)
	})
	configMaps, accounts := tenant.CoreV1().ConfigMaps(namespace), tenant.CoreV1().ServiceAccounts(namespace)
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("a tenant reads %d ConfigMaps: %v", len(list.Items), err)
	}
	_, patchErr := configMaps.Patch(t.Context(), list.Items[0].Name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	_, applyErr := configMaps.Patch(t.Context(), "applied", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`), metav1.PatchOptions{FieldManager: "e2e"})
	_, tokenErr := accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	for what, err := range map[string]error{
		"patch": patchErr, "apply": applyErr, "token": tokenErr,
		"delete":           configMaps.Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}),
		"deletecollection": configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		"dry run":          configMaps.Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}),
	} {
		if err := framework.RefusedBy("nsinit-freeze", err, says...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.User(t, "e2e-writes-frozen", framework.Everything(), framework.Initialize())
	if err := framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.As("e2e-writes-frozen")), namespace); err != nil {
		t.Errorf("a user with the verb initialize: %v", err)
	}
	if finding := c.WaitWhy(t, namespace, diagnosis.NamespaceFrozen, diagnosis.Healthy); !strings.Contains(finding.Message, why) {
		t.Errorf("kubectl nsinit why says %q", finding.Message)
	}
	onlyFreezersFreeze(t, c, namespace, tenant)

	c.RunDocumented(t, "Unfreeze a namespace", map[string]string{"NAMESPACE": namespace})
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, "False/Unfrozen", "")
	framework.Eventually(t, "a tenant can write again", func(ctx context.Context) error { return framework.WriteConfigMap(ctx, tenant, namespace) })
	c.WaitEvents(t, namespace, v1alpha1.ReasonInitialized, v1alpha1.ReasonFrozen, v1alpha1.ReasonFrozen, v1alpha1.ReasonUnfrozen)
	framework.Eventually(t, "the audit log reports both", func(context.Context) error {
		events, _ := c.AuditSince(t, from)
		said := map[string]bool{}
		for _, event := range events {
			if event.ResponseStatus.Code != http.StatusOK {
				continue // refused requests have the annotations, too
			}
			for key, value := range event.Annotations {
				said[key+"="+value] = true
			}
		}
		if !said["nsinit-guard-freeze/frozen=namespace "+namespace+": "+why+": evidence"] || !said["nsinit-guard-freeze/unfrozen=namespace "+namespace] {
			return errors.New("it does not")
		}
		return nil
	})
}

// onlyFreezersFreeze: without the verb, no user changes what freezes a namespace, through any endpoint, or deletes it. With
// the verb, users name themselves.
func onlyFreezersFreeze(t *testing.T, c *framework.Cluster, namespace string, tenant kubernetes.Interface) {
	t.Helper()
	unfreeze := []byte(`{"metadata":{"labels":{"nsinit.dev/frozen":null},"annotations":{"nsinit.dev/frozen-by":null,"nsinit.dev/frozen-reason":null}}}`)
	patch := func(client kubernetes.Interface, data []byte, subresources ...string) error {
		_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
		return err
	}
	for what, err := range map[string]error{
		"unfreeze":             patch(tenant, unfreeze),
		"unfreeze by status":   patch(tenant, unfreeze, "status"),
		"another reason":       patch(tenant, freezing("e2e-frozen", "mine")),
		"delete the namespace": tenant.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}),
	} {
		if err := framework.RefusedBy("nsinit-guard-freeze", err, "needs the verb freeze on namespaces"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patch(tenant, []byte(`{"metadata":{"labels":{"team":"a"}}}`)); err != nil {
		t.Errorf("another label: %v", err)
	}
	meta := metav1.ObjectMeta{Name: c.Name("ns"), Labels: map[string]string{v1alpha1.LabelFrozen: ""}}
	_, err := tenant.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	if err := framework.RefusedBy("nsinit-guard-freeze", err); err != nil {
		t.Errorf("a new namespace: %v", err)
	}

	c.User(t, "e2e-freezer", framework.Everything(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFreeze}})
	freezer := kubernetes.NewForConfigOrDie(c.As("e2e-freezer"))
	for what, data := range map[string][]byte{
		"another user":    freezing("kubernetes-admin", "mine"),
		"several lines":   freezing("e2e-freezer", "mi\nne"),
		"a long reason":   freezing("e2e-freezer", strings.Repeat("x", 513)),
		"no reason":       freezing("e2e-freezer", ""),
		"only annotation": []byte(`{"metadata":{"labels":{"nsinit.dev/frozen":null}}}`),
	} {
		if err := patch(freezer, data); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "nsinit-guard-freeze") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patch(freezer, freezing("e2e-freezer", "mine")); err != nil {
		t.Errorf("a user with the verb freeze: %v", err)
	}
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, "True/Frozen", `user "e2e-freezer" froze the namespace: mine`)
}
