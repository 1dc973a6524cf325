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

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// everything allows all that RBAC can allow by Kubernetes' own verbs, and so none of
// nsinit's. What refuses a holder is a policy.
func everything() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}
}

// initialize allows to write into initializing namespaces, all of them if none is named.
func initialize(namespaces ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: namespaces,
		Verbs: []string{v1alpha1.VerbInitialize},
	}
}

// user makes a user who has these rights in the whole cluster, and returns the
// configuration of its client once they are in force.
func (c *cluster) user(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	config := c.as(name)
	c.grant(t, name, kubernetes.NewForConfigOrDie(config), rules...)
	return config
}

// grant gives a user rights in the whole cluster until the test ends, and waits until they
// are in force.
func (c *cluster) grant(t *testing.T, user string, client kubernetes.Interface, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: uniqueName("e2e")}
	if _, err := c.core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.core.RbacV1().ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	if _, err := c.core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.core.RbacV1().ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}) })
	for _, rule := range rules {
		question := authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0]}
		if len(rule.ResourceNames) > 0 {
			question.Name = rule.ResourceNames[0]
		}
		eventually(t, fmt.Sprintf("%s has the right to %s %s", user, question.Verb, question.Resource), func(ctx context.Context) error {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &question},
			}, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = errors.New("not yet")
			}
			return err
		})
	}
}

// waitMay waits until a user has a right, in the whole cluster or in a namespace.
func (c *cluster) waitMay(t *testing.T, config *rest.Config, resource, verb string, namespace ...string) {
	t.Helper()
	question := authorizationv1.ResourceAttributes{Resource: resource, Verb: verb, Namespace: strings.Join(namespace, "")}
	client := kubernetes.NewForConfigOrDie(config)
	eventually(t, fmt.Sprintf("%s has the right to %s %s", config.Impersonate.UserName, verb, resource), func(ctx context.Context) error {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &question},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
}

// serviceAccount makes a service account with rights in the whole cluster, and returns its
// user name and the configuration of a client that has its token.
func (c *cluster) serviceAccount(t *testing.T, rules ...rbacv1.PolicyRule) (string, *rest.Config) {
	t.Helper()
	ctx := context.Background()
	accounts := c.core.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: uniqueName("e2e")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Delete(ctx, account.Name, metav1.DeleteOptions{}) })
	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.admin)
	config.BearerToken = token.Status.Token
	name := "system:serviceaccount:" + account.Namespace + ":" + account.Name
	c.grant(t, name, kubernetes.NewForConfigOrDie(config), rules...)
	return name, config
}

// refusedBy checks that a policy refuses a request, and what it says.
func refusedBy(policy string, err error, parts ...string) error {
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

// held creates a namespace that stays closed until the test ends, because nobody acts as
// the initializer that it waits for.
func (c *cluster) held(t *testing.T, config *rest.Config) *corev1.Namespace {
	t.Helper()
	const initializer = "hold.example.com"
	c.configure(t, named(initializer)...)
	namespace := c.createNamespace(t, config)
	c.waitCurrent(t, namespace.Name, initializer)
	eventually(t, "the namespace says what it waits for", func(ctx context.Context) (err error) {
		namespace, err = c.core.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == v1alpha1.ConditionInitializing && strings.Contains(condition.Message, initializer) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", namespace.Status.Conditions)
	})
	return namespace
}
