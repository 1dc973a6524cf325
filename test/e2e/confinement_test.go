//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestConfinement: a confined initializer with all rights of RBAC writes only the resources that it declares, and only in
// namespaces that are initializing. Other users are not confined.
func TestConfinement(t *testing.T) {
	c := framework.Share(t)
	open := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, open)
	closed := c.CreateHeld(t, c.Admin).Name
	rules := []rbacv1.PolicyRule{framework.Everything(), framework.Initialize()}
	user, config := c.ServiceAccount(t, rules...)
	initializer := kubernetes.NewForConfigOrDie(config)
	c.User(t, "e2e-not-confined", rules...)
	const policy = "nsinit-confine-confined.example.com"
	c.ApplyInput(t, c.MustPlugin(t, "rbac", "confined.example.com", "--service-account="+user[len("system:serviceaccount:"):], "--confine-to=configmaps"))
	says := `initializer confined.example.com may write only in namespaces that are initializing or terminating, and only configmaps`
	framework.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		return framework.RefusedBy(policy, framework.WriteConfigMap(ctx, initializer, open), says, `refuses configmaps in namespace "`+open+`"`)
	})
	meta, options := metav1.ObjectMeta{GenerateName: "confined-"}, metav1.CreateOptions{}
	_, otherErr := initializer.CoreV1().Secrets(closed).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, options)
	_, clusterErr := initializer.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, options)
	_, leaseErr := initializer.CoordinationV1().Leases(closed).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, options)
	for what, err := range map[string]error{"another resource": otherErr, "a resource without a namespace": clusterErr, "a Lease of others": leaseErr} {
		if err := framework.RefusedBy(policy, err, says); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, eventErr := initializer.CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), &corev1.Event{ObjectMeta: meta,
		InvolvedObject: corev1.ObjectReference{Namespace: metav1.NamespaceDefault}}, options)
	_, ownErr := initializer.CoordinationV1().Leases(metav1.NamespaceDefault).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, options)
	for what, err := range map[string]error{
		"a declared resource": framework.WriteConfigMap(t.Context(), initializer, closed), "an event": eventErr, "its Lease": ownErr,
		"another user": framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.As("e2e-not-confined")), open),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
