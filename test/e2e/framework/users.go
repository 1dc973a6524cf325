/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// User grants rights to a user in the whole cluster until the test ends. It returns the configuration of the user's clients
// when the rights are in force.
func (c *Cluster) User(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config := c.As(name)
	c.Grant(t, name, kubernetes.NewForConfigOrDie(config), rules...)
	return config
}

// Grant grants rights to a user in the whole cluster until the test ends. It waits until the user's client has them.
func (c *Cluster) Grant(t *testing.T, user string, client kubernetes.Interface, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: UniqueName("e2e")}
	if _, err := c.Core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Core.RbacV1().ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	if _, err := c.Core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Core.RbacV1().ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	for _, rule := range rules {
		question := authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0]}
		if len(rule.ResourceNames) > 0 {
			question.Name = rule.ResourceNames[0]
		}
		waitAllowed(t, user, client, question)
	}
}

// Tenant returns the clients of the user e2e-tenant, who may create namespaces and write ConfigMaps, and has no verb of
// nsinit.
func (c *Cluster) Tenant(t *testing.T) kubernetes.Interface {
	t.Helper()
	const name = "e2e-tenant"
	ctx, client := t.Context(), kubernetes.NewForConfigOrDie(c.As(name))
	_, roleErr := c.Core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})
	_, bindingErr := c.Core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	for _, err := range []error{roleErr, bindingErr} {
		if err != nil && !apierrors.IsAlreadyExists(err) { // other tests use the same user
			t.Fatal(err)
		}
	}
	waitAllowed(t, name, client, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "create"})
	return client
}

// ServiceAccount creates a service account with rights in the whole cluster, until the test ends. It returns the user name,
// and the configuration of a client with its token.
func (c *Cluster) ServiceAccount(t *testing.T, rules ...rbacv1.PolicyRule) (string, *rest.Config) {
	t.Helper()
	ctx := context.Background()
	accounts := c.Core.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: UniqueName("e2e")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Delete(ctx, account.Name, metav1.DeleteOptions{}) })
	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Admin)
	config.BearerToken = token.Status.Token
	name := "system:serviceaccount:" + account.Namespace + ":" + account.Name
	c.Grant(t, name, kubernetes.NewForConfigOrDie(config), rules...)
	return name, config
}

// WaitMay waits until a user has a right, in the whole cluster or in a namespace.
func (c *Cluster) WaitMay(t *testing.T, config *rest.Config, resource, verb string, namespace ...string) {
	t.Helper()
	waitAllowed(t, config.Impersonate.UserName, kubernetes.NewForConfigOrDie(config),
		authorizationv1.ResourceAttributes{Resource: resource, Verb: verb, Namespace: strings.Join(namespace, "")})
}

// waitAllowed waits until kube-apiserver allows something to a user.
func waitAllowed(t *testing.T, user string, client kubernetes.Interface, question authorizationv1.ResourceAttributes) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s may %s %s", user, question.Verb, question.Resource), func(ctx context.Context) error {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &question},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("the user may not")
		}
		return err
	})
}

// Everything allows every verb of Kubernetes on every resource, and no verb of nsinit. Only a policy can refuse a user with
// it.
func Everything() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}
}

// Initialize allows writes into these namespaces while they are closed. Without names it allows them in every namespace.
func Initialize(namespaces ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: namespaces,
		Verbs: []string{v1alpha1.VerbInitialize},
	}
}

// Refused returns an error unless the gate refused a write with a message that contains all parts.
func Refused(err error, parts ...string) error { return RefusedBy("nsinit-gate", err, parts...) }

// RefusedBy returns an error unless a policy refused a request with a message that contains all parts.
func RefusedBy(policy string, err error, parts ...string) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("want a refusal by %s, got %w", policy, errors.Join(err, errors.New("(no other error)")))
	}
	for _, part := range append(parts, "'"+policy+"'") {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("the refusal does not say %q: %w", part, err)
		}
	}
	return nil
}
