//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
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

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// writes sends one request of each kind for a ConfigMap, and a request for a subresource. It returns their errors.
func writes(t *testing.T, client kubernetes.Interface, namespace, name string) map[string]error {
	t.Helper()
	configMaps, accounts := client.CoreV1().ConfigMaps(namespace), client.CoreV1().ServiceAccounts(namespace)
	live, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.Data = map[string]string{"a": "b"}
	_, updateErr := configMaps.Update(t.Context(), live, metav1.UpdateOptions{})
	_, patchErr := configMaps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"c":"d"}}`), metav1.PatchOptions{})
	_, applyErr := configMaps.Patch(t.Context(), name, types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`), metav1.PatchOptions{FieldManager: "e2e"})
	_, tokenErr := accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	return map[string]error{
		"create": framework.WriteConfigMap(t.Context(), client, namespace), "update": updateErr, "patch": patchErr, "apply": applyErr, "token": tokenErr,
		"dry run":          configMaps.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}),
		"delete":           configMaps.Delete(t.Context(), name, metav1.DeleteOptions{}),
		"deletecollection": configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	}
}

// TestFreeze: while a namespace is frozen, its tenants read, and kube-apiserver refuses their writes and its deletion. Only
// users with the verb freeze freeze and unfreeze it. Its conditions, an event and the audit log report both.
func TestFreeze(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	c.User(t, "e2e-frozen", framework.Everything())
	tenant := kubernetes.NewForConfigOrDie(c.As("e2e-frozen"))
	framework.WaitWrite(t, tenant, namespace)
	_, from := c.AuditSince(t, 0)

	c.RunDocumented(t, framework.FreezeGuide, "Freeze a namespace", map[string]string{"NAMESPACE": namespace})
	const why = "incident 4711"
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, "True/Frozen", `user "kubernetes-admin" froze the namespace: `+why)
	says := []string{`namespace "` + namespace + `" is frozen by kubernetes-admin and cannot be written to: ` + why, "kubectl nsinit unfreeze " + namespace}
	framework.Eventually(t, "a tenant cannot write", func(ctx context.Context) error {
		return framework.RefusedBy("nsinit-freeze", framework.WriteConfigMap(ctx, tenant, namespace), says...)
	})
	list, err := tenant.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("a tenant reads %d ConfigMaps: %v", len(list.Items), err)
	}
	for what, err := range writes(t, tenant, namespace, list.Items[0].Name) {
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
	c.RefusedPlugin(t, `is already frozen: user "kubernetes-admin" froze the namespace: `+why, "freeze", namespace, "--reason=another")
	freezer := kubernetes.NewForConfigOrDie(c.User(t, "e2e-freezer", framework.Everything(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFreeze}}))
	guardsFrozen(t, namespace, tenant, freezer)
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, "True/Frozen", `user "e2e-freezer" froze the namespace: mine`)

	c.RunDocumented(t, framework.FreezeGuide, "Unfreeze a namespace", map[string]string{"NAMESPACE": namespace})
	c.WaitCondition(t, namespace, v1alpha1.ConditionFrozen, `False/Unfrozen user "kubernetes-admin" unfroze the namespace: `+why+`: evidence is saved; user "e2e-freezer" had frozen it: mine`)
	framework.WaitWrite(t, tenant, namespace)
	guardsUnfrozen(t, namespace, tenant, freezer)
	guardsNew(t, c, tenant, freezer)
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
		for _, want := range []string{
			"nsinit-guard-freeze/frozen=namespace " + namespace + ", by kubernetes-admin: " + why + ": evidence",
			"nsinit-guard-freeze/frozen=namespace " + namespace + ", by e2e-freezer: mine; frozen before by kubernetes-admin: " + why + ": evidence",
			"nsinit-guard-freeze/unfrozen=namespace " + namespace + ", by kubernetes-admin: " + why + ": evidence is saved; frozen before by e2e-freezer: mine",
		} {
			if !said[want] {
				return fmt.Errorf("it lacks %s", want)
			}
		}
		return nil
	})
}

// by returns a change of the annotations that say who froze or unfroze a namespace and why, and of the label.
func by(frozen *string, annotations map[string]*string) change {
	return change{labels: map[string]*string{v1alpha1.LabelFrozen: frozen}, annotations: annotations}
}

// guarded: the policy refuses changes of a namespace to a user in every way, also as a dry run, and to a user without the verb
// as forbidden.
func guarded(t *testing.T, client kubernetes.Interface, namespace string, may bool, changes map[string]change) {
	t.Helper()
	for way, write := range ways() {
		for name, change := range changes {
			for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
				made, err := write(t.Context(), client.CoreV1().Namespaces(), namespace, change, dryRun)
				if made && (may != apierrors.IsInvalid(err) || may == apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'nsinit-guard-freeze'")) {
					t.Errorf("%s, %s, dry run %v: %v", way, name, dryRun, err)
				}
			}
		}
	}
}

// guardsFrozen: without the verb, no user changes a frozen namespace, or deletes it. With the verb, users name themselves, and
// keep who froze it. In the end, e2e-freezer froze it.
func guardsFrozen(t *testing.T, namespace string, tenant, freezer kubernetes.Interface) {
	t.Helper()
	self, other, label, long, lines, mirrored, empty := "e2e-freezer", "kubernetes-admin", "true", strings.Repeat("x", 513), "mi\nne", "mi\u202ene", ""
	guarded(t, tenant, namespace, false, map[string]change{
		"unfreeze":       by(nil, map[string]*string{v1alpha1.AnnotationUnfrozenBy: new("e2e-frozen")}),
		"another reason": annotation(v1alpha1.AnnotationFrozenReason, &self),
		"unfrozen by":    annotation(v1alpha1.AnnotationUnfrozenBy, &self),
		"another label":  by(&self, nil),
	})
	err := tenant.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{})
	if err := framework.RefusedBy("nsinit-guard-freeze", err, "is frozen by kubernetes-admin: to delete it, you need the verb freeze on namespaces"); err != nil {
		t.Error(err)
	}
	if _, err := tenant.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another label: %v", err)
	}
	freezing := func(who, why *string) change {
		return by(&label, map[string]*string{v1alpha1.AnnotationFrozenBy: who, v1alpha1.AnnotationFrozenReason: why})
	}
	unfreezing := func(who, why *string) change {
		return by(nil, map[string]*string{v1alpha1.AnnotationUnfrozenBy: who, v1alpha1.AnnotationUnfrozenReason: why})
	}
	forgets := unfreezing(&self, &self)
	forgets.annotations[v1alpha1.AnnotationFrozenBy] = &self
	guarded(t, freezer, namespace, true, map[string]change{
		"freeze as another user": freezing(&other, &self), "freeze with lines": freezing(&self, &lines), "freeze with bidirectional controls": freezing(&self, &mirrored),
		"freeze with a long reason": freezing(&self, &long), "freeze without a reason": freezing(&self, &empty),
		"unfreeze without a user": by(nil, nil), "unfreeze as another user": unfreezing(&other, &self), "unfreeze with lines": unfreezing(&self, &lines),
		"unfreeze with a long reason": unfreezing(&self, &long), "unfreeze, and forget who froze it": forgets,
		"unfrozen by while it is frozen": by(&label, map[string]*string{v1alpha1.AnnotationFrozenBy: &self, v1alpha1.AnnotationUnfrozenBy: &self}),
	})
	apply := patch(types.ApplyPatchType, change.apply)
	if _, err := apply(t.Context(), freezer.CoreV1().Namespaces(), namespace, freezing(&self, new("mine")), nil); err != nil {
		t.Errorf("a user with the verb freeze: %v", err)
	}
	if _, err := apply(t.Context(), freezer.CoreV1().Namespaces(), namespace, annotation("e2e", &self), nil); !apierrors.IsInvalid(err) {
		t.Errorf("an apply that drops what froze the namespace: %v", err)
	}
}

// guardsUnfrozen: what says who unfroze a namespace stays as it is. A user with the verb can only remove all of it.
func guardsUnfrozen(t *testing.T, namespace string, tenant, freezer kubernetes.Interface) {
	t.Helper()
	self, other := "e2e-freezer", "kubernetes-admin"
	changes := map[string]change{
		"another user":            annotation(v1alpha1.AnnotationUnfrozenBy, &self),
		"another reason":          annotation(v1alpha1.AnnotationUnfrozenReason, &self),
		"no user":                 annotation(v1alpha1.AnnotationUnfrozenBy, nil),
		"another who froze it":    annotation(v1alpha1.AnnotationFrozenBy, &other),
		"another reason to do it": annotation(v1alpha1.AnnotationFrozenReason, &self),
	}
	guarded(t, freezer, namespace, true, changes)
	all := map[string]*string{}
	for _, key := range []string{v1alpha1.AnnotationFrozenBy, v1alpha1.AnnotationFrozenReason, v1alpha1.AnnotationUnfrozenBy, v1alpha1.AnnotationUnfrozenReason} {
		all[key] = nil
	}
	changes["nothing"] = change{annotations: all}
	guarded(t, tenant, namespace, false, changes)
	for way, write := range ways() {
		if _, err := write(t.Context(), freezer.CoreV1().Namespaces(), namespace, changes["nothing"], []string{metav1.DryRunAll}); err != nil {
			t.Errorf("%s: a user with the verb freeze removes all: %v", way, err)
		}
	}
}

// guardsNew: only a user with the verb creates a frozen namespace, and no user one that says that it was frozen before.
func guardsNew(t *testing.T, c *framework.Cluster, tenant, freezer kubernetes.Interface) {
	t.Helper()
	create := func(client kubernetes.Interface, meta metav1.ObjectMeta) error {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, meta := range []metav1.ObjectMeta{{Name: c.Name("ns")}, {GenerateName: c.Name("ns") + "-"}} {
		frozen := meta
		frozen.Labels = map[string]string{v1alpha1.LabelFrozen: ""}
		frozen.Annotations = map[string]string{v1alpha1.AnnotationFrozenBy: "e2e-freezer", v1alpha1.AnnotationFrozenReason: "mine"}
		if err := create(freezer, frozen); err != nil {
			t.Errorf("a user with the verb freeze: %v", err)
		}
		if err := framework.RefusedBy("nsinit-guard-freeze", create(tenant, frozen)); err != nil {
			t.Errorf("frozen: %v", err)
		}
		for _, key := range []string{v1alpha1.AnnotationFrozenBy, v1alpha1.AnnotationFrozenReason, v1alpha1.AnnotationUnfrozenBy, v1alpha1.AnnotationUnfrozenReason} {
			forged := meta
			forged.Annotations = map[string]string{key: "e2e-freezer"}
			if err := framework.RefusedBy("nsinit-guard-freeze", create(tenant, forged)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if err := create(freezer, forged); !apierrors.IsInvalid(err) {
				t.Errorf("%s, with the verb freeze: %v", key, err)
			}
		}
	}
}
