//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestGate: while a namespace is initializing, kube-apiserver refuses every verb that discovery shows for every namespaced
// resource and subresource, except what is listed. In an open namespace the gate refuses none of them.
func TestGate(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	for _, definition := range []string{thingDefinition(), namesakeDefinition()} {
		c.ApplyInput(t, definition)
	}
	// One of the two servers evaluates the policies, as servers built on k8s.io/apiserver do by default.
	const noMutation = "--disable-admission-plugins=MutatingAdmissionPolicy" // Kubernetes 1.34 has none
	serveFlunders(t, c, map[string][]string{"v1beta1": {noMutation}, "v1alpha1": {noMutation + ",ValidatingAdmissionPolicy"}})
	open, another := c.CreateNamespace(t, c.Admin).Name, c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, open)
	closed := c.CreateHeld(t, c.Admin).Name
	examples, cells := readExamples(t, c), []cell(nil)
	framework.Eventually(t, "discovery is complete", func(context.Context) (err error) {
		if cells, err = matrixCells(t, c, examples); err != nil {
			return err
		}
		for _, name := range importantCells() {
			if !slices.ContainsFunc(cells, func(c cell) bool { return c.name == name }) {
				return fmt.Errorf("there is no cell %q", name)
			}
		}
		return nil
	})
	examples.fill(t, c, cells, closed)
	examples.fill(t, c, cells, open)
	allRights(t, c, "e2e-tenant-of-all", closed, open)
	tenant := newGateClient(c, c.As("e2e-tenant-of-all"))

	t.Run("matrix", func(t *testing.T) {
		excepted := map[string]int{}
		var group errgroup.Group
		group.SetLimit(16)
		for _, cell := range cells {
			if cell.exception != "" {
				excepted[cell.exception]++
			}
			group.Go(func() error {
				err := tenant.try(t.Context(), cell, closed, cell.exception != "")
				if cell.exception == "" {
					err = refusedByGate(cell, err, closed)
				} else {
					err = passed(cell, err)
				}
				if err != nil {
					t.Errorf("%s in a closed namespace: %v", cell.name, err)
				}
				if err := passed(cell, tenant.try(t.Context(), cell, open, true)); err != nil {
					t.Errorf("%s in an open namespace: %v", cell.name, err)
				}
				return nil
			})
		}
		_ = group.Wait()
		if diff := cmp.Diff(slices.Sorted(maps.Keys(excepted)), documentedExceptions(t, c)); diff != "" {
			t.Errorf("the exceptions differ from those that docs/security.md lists (-test +docs):\n%s", diff)
		}
		t.Logf("%d cells, of which pass: %v", len(cells), excepted)
		if least := 600; len(cells) < least {
			t.Errorf("%d cells are fewer than %d", len(cells), least)
		}
	})

	clients := map[string]gateClient{
		"holder":                          newGateClient(c, c.User(t, "e2e-holder", framework.Everything(), framework.Initialize(closed))),
		"holder for another":              newGateClient(c, c.User(t, "e2e-other-holder", framework.Everything(), framework.Initialize(another))),
		"holder by a RoleBinding":         newGateClient(c, c.User(t, "e2e-bound", framework.Everything())),
		"tenant impersonated by a holder": newGateClient(c, impersonating(t, c, "e2e-tenant-of-all")),
	}
	bindInitialize(t, c, closed, "e2e-bound")
	t.Run("identities", func(t *testing.T) {
		var group errgroup.Group
		group.SetLimit(16)
		for _, cell := range cells {
			// OPTIONS has no verb for a role.
			if !slices.Contains(importantCells(), cell.name) || cell.method == http.MethodOptions {
				continue
			}
			for who, client := range clients {
				group.Go(func() error {
					if who == "holder" {
						if err := passed(cell, client.try(t.Context(), cell, closed, true)); err != nil {
							t.Errorf("%s as %s: %v", cell.name, who, err)
						}
					} else if err := refusedByGate(cell, client.try(t.Context(), cell, closed, false), closed); err != nil {
						t.Errorf("%s as %s: %v", cell.name, who, err)
					}
					return nil
				})
			}
		}
		_ = group.Wait()
	})
}

// impersonating returns a client that impersonates a user. The client's own user holds the verb initialize.
func impersonating(t *testing.T, c *framework.Cluster, user string) *rest.Config {
	t.Helper()
	_, config := c.ServiceAccount(t, framework.Everything(), framework.Initialize(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}})
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// bindInitialize grants the verb initialize in one namespace, as RBAC allows its administrator. This has no
// effect on the gate.
func bindInitialize(t *testing.T, c *framework.Cluster, namespace, user string) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.Core.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "initialize"}, Rules: []rbacv1.PolicyRule{framework.Initialize()},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []rbacv1.RoleRef{
		{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "initialize"},
		{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nsinit:initialize-namespaces"},
	} {
		if _, err := c.Core.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "initialize-"}, RoleRef: role,
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// RBAC allows it for requests within the namespace.
	framework.Eventually(t, "the RoleBinding is in force", func(ctx context.Context) error {
		answer, err := c.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Name: namespace,
			}},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("not yet: %s", answer.Status.Reason)
		}
		return err
	})
}

// TestGateMessage: the gate quotes the namespace's condition, with any text.
func TestGateMessage(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	// Without the controller, only this test writes the conditions.
	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() { c.Dev(t, "start", "nsinit-controller-manager") })
	namespace := c.CreateNamespace(t, c.Admin)
	name := namespace.Name
	for _, test := range []struct {
		name, message, want string
		status              corev1.ConditionStatus
	}{
		{"no condition", "", "nsinit has not recorded yet what it waits for; it can", ""},
		{"empty message", "", "nsinit has not recorded yet what it waits for; it can", corev1.ConditionTrue},
		{"condition", "waiting for an initializer", "waiting for an initializer; it can", corev1.ConditionTrue},
		{"condition of before", "waiting for a former one", "nsinit has not recorded yet what it waits for; it can", corev1.ConditionFalse},
		{"several lines", "waiting\nfor\nan initializer", "waiting for an initializer; it can", corev1.ConditionTrue},
		{"long", strings.Repeat("ü\n", 20000), strings.Repeat("ü ", 512) + "...; it can", corev1.ConditionTrue},
	} {
		namespace.Status.Conditions = nil
		if test.status != "" {
			namespace.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionInitializing, Status: test.status, Message: test.message}}
		}
		namespace.ResourceVersion = ""
		namespace.Labels[v1alpha1.LabelInitializing] = "" // closes the gate as any other value does
		if _, err := c.Core.CoreV1().Namespaces().UpdateStatus(t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, test.name, func(ctx context.Context) error {
			return framework.Refused(framework.WriteConfigMap(ctx, tenant, name), fmt.Sprintf("namespace %q is being initialized and cannot be written to yet: %s", name, test.want))
		})
	}
}
