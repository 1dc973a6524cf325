//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestOperate: the commands in docs/skip-initializer.md skip or remove a broken initializer.
func TestOperate(t *testing.T) {
	c := framework.Share(t)
	stored := c.Configure(t, framework.Initializers("broken.example.com", "works.example.com")...)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, namespace, "broken.example.com")
	words := map[string]string{"NAMESPACE": namespace, "INITIALIZER": "broken.example.com", "CONFIGURATION": stored.Name}
	if out := c.RunDocumented(t, framework.TroubleshootGuide, "See what a namespace waits for", words); !strings.Contains(out, "broken.example.com") {
		t.Errorf("it does not name the pending initializer:\n%s", out)
	}

	// The exit code 2 reports that the initialization is in progress.
	if out, err := c.TryDocumented(t, framework.WhyGuide, "Find out why a namespace waits", words); err == nil || !strings.Contains(out, `waiting for initializer "broken.example.com"`) {
		t.Errorf("it does not name the pending initializer: %v\n%s", err, out)
	}

	c.RunDocumented(t, framework.SkipInitializerGuide, "Give an initializer a deadline", words)
	configured := func() []v1alpha1.RegisteredInitializer {
		configuration, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), stored.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return configuration.Initializers
	}
	if first := configured()[0]; first.FailurePolicy == nil || *first.FailurePolicy != v1alpha1.Ignore || *first.TimeoutSeconds != 30 {
		t.Errorf("it has no deadline: %+v", first)
	}
	c.RunDocumented(t, framework.SkipInitializerGuide, "Remove an initializer from its configuration", words)
	if all := configured(); len(all) != 1 || all[0].Name != "works.example.com" {
		t.Errorf("the configuration holds %+v", all)
	}
	other := c.CreateNamespace(t, c.Admin).Name
	if plan := c.WaitCurrent(t, other, "works.example.com").Spec.Plan; len(plan) != 1 {
		t.Errorf("a new namespace has the plan %+v", plan)
	}
	// The waiting namespace keeps its plan, without a deadline.
	if plan := c.WaitCurrent(t, namespace, "broken.example.com").Spec.Plan; len(plan) != 2 || plan[0].FailurePolicy != nil {
		t.Errorf("the namespace that waits has the plan %+v", plan)
	}

	c.RunDocumented(t, framework.SkipInitializerGuide, "Skip an initializer in one namespace", words)
	lifecycle := c.WaitCurrent(t, namespace, "works.example.com")
	if entry := lifecycle.Status.Initializers[0]; entry.State != v1alpha1.InitializerSkipped || entry.LastActor != "kubernetes-admin" {
		t.Errorf("its entry is %+v", entry)
	}
	if out := c.RunDocumented(t, framework.SkipInitializerGuide, "Skip an initializer in one namespace", words); !strings.Contains(out, "broken.example.com already skipped in namespace "+namespace) {
		t.Errorf("skipping it again:\n%s", out)
	}

	c.RunDocumented(t, framework.SkipInitializerGuide, "Delete a configuration", words)
	framework.Eventually(t, "the configuration counts who waits for it", func(ctx context.Context) error {
		configuration, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, stored.Name, metav1.GetOptions{})
		if err == nil && (configuration.Status.Phase != v1alpha1.ConfigurationTerminating || configuration.Status.PendingNamespaces != 2) {
			err = fmt.Errorf("phase %s, %d pending", configuration.Status.Phase, configuration.Status.PendingNamespaces)
		}
		return err
	})
	c.WaitReady(t, c.CreateNamespace(t, c.Admin).Name)
	for _, name := range []string{namespace, other} {
		c.RemoveFirst(t, name)
		c.WaitReady(t, name)
	}
}

// TestCanI: the answers of kubectl auth can-i, as in docs/install.md, match the results of real requests.
func TestCanI(t *testing.T) {
	c := framework.Connect(t)
	namespace := c.CreateHeld(t, c.Admin).Name
	c.User(t, "e2e-can", framework.Initialize(namespace), framework.Everything(), rbacv1.PolicyRule{
		APIGroups: []string{"nsinit.dev"}, Resources: []string{"initializers"}, ResourceNames: []string{"hold.example.com"}, Verbs: []string{"initialize"}})
	c.User(t, "e2e-cannot", framework.Everything())
	bindInitialize(t, c, namespace, "e2e-cannot")
	lines := strings.Split(strings.TrimSpace(c.Documented(t, framework.InstallGuide, "Check who may do what")[0]), "\n")
	for user, want := range map[string][]string{
		"e2e-can":    {"yes", "yes", "yes"},
		"e2e-cannot": {"no", "no", "yes"},
	} {
		for i, line := range lines {
			line = strings.NewReplacer("NAMESPACE", namespace, "INITIALIZER", "hold.example.com").Replace(strings.TrimPrefix(line, "kubectl "))
			out, err := c.Kubectl(append(strings.Fields(line), "--as="+user)...)
			if got := strings.TrimSpace(out); got != want[i] || (err == nil) != (got == "yes") {
				t.Errorf("%s, as %s: %q, want %s (%v)", line, user, got, want[i], err)
			}
		}
		err := framework.WriteConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.As(user)), namespace)
		if (err == nil) != (want[0] == "yes") {
			t.Errorf("as %s: %v", user, err)
		}
	}
}

// TestAggregatedRoles: users with the role view, edit or admin can read configurations and NamespaceLifecycles, and
// cannot change them.
func TestAggregatedRoles(t *testing.T) {
	c := framework.Share(t)
	for _, role := range []string{"view", "edit", "admin"} {
		user := "e2e-" + role
		binding, err := c.Core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("e2e")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Core.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
		})
		framework.Eventually(t, role+" includes nsinit:view", func(ctx context.Context) error {
			client := versioned.NewForConfigOrDie(c.As(user)).NsinitV1alpha1()
			if _, err := client.NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{}); err != nil {
				return err
			}
			_, err := client.NamespaceLifecycles().List(ctx, metav1.ListOptions{})
			return err
		})
		for _, question := range []string{"create namespaceinitializerconfigurations", "update namespacelifecycles", "initialize namespaces", "open namespaces"} {
			out, _ := c.Kubectl(append([]string{"auth", "can-i", "--all-namespaces", "--as=" + user}, strings.Fields(question)...)...)
			if got := strings.TrimSpace(out); got != "no" {
				t.Errorf("can %s %s: %q", role, question, got)
			}
		}
	}
}
