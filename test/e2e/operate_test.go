//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// documented returns the first commands under a heading of docs/operate.md.
func (c *cluster) documented(t *testing.T, heading string) string {
	t.Helper()
	return c.allDocumented(t, heading)[0]
}

// allDocumented returns all commands under a heading of docs/operate.md.
func (c *cluster) allDocumented(t *testing.T, heading string) []string {
	t.Helper()
	return c.allDocumentedIn(t, "operate.md", heading)
}

// allDocumentedIn returns all commands under a heading of a document.
func (c *cluster) allDocumentedIn(t *testing.T, document, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	var all []string
	for {
		_, rest, fenced := strings.Cut(section, "```console\n")
		commands, rest, closed := strings.Cut(rest, "```")
		if !fenced || !closed {
			break
		}
		all, section = append(all, commands), rest
	}
	if !found || len(all) == 0 {
		t.Fatalf("docs/%s has no commands under %q", document, heading)
	}
	return all
}

// runDocumented runs the commands under a heading of docs/operate.md as they stand there, but
// for the words in capitals, and returns what they print.
func (c *cluster) runDocumented(t *testing.T, heading string, words map[string]string) string {
	t.Helper()
	out, err := c.tryDocumented(t, heading, words)
	if err != nil {
		t.Fatalf("%s: %v\n%s", heading, err, out)
	}
	return out
}

func (c *cluster) tryDocumented(t *testing.T, heading string, words map[string]string) (string, error) {
	t.Helper()
	return c.shell(t, c.documented(t, heading), words)
}

// shell runs commands in the folder of the project.
func (c *cluster) shell(t *testing.T, commands string, words map[string]string) (string, error) {
	t.Helper()
	for word, value := range words {
		commands = strings.ReplaceAll(commands, word, value)
	}
	command := exec.CommandContext(t.Context(), "bash", "-o", "errexit", "-o", "pipefail", "-c", commands)
	command.Dir = c.root
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(), "HOME="+c.dir, "PATH="+filepath.Join(c.root, "_output", "bin")+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestOperate: the commands by which an administrator takes a broken initializer out of the
// way do what docs/operate.md says.
func TestOperate(t *testing.T) {
	c := connect(t)
	stored := c.configure(t, named("broken.example.com", "works.example.com")...)
	namespace := c.createNamespace(t, c.admin).Name
	c.waitCurrent(t, namespace, "broken.example.com")
	words := map[string]string{"NAMESPACE": namespace, "INITIALIZER": "broken.example.com", "CONFIGURATION": stored.Name}
	if out := c.runDocumented(t, "Who is being waited for", words); !strings.Contains(out, "broken.example.com") {
		t.Errorf("it does not tell who is waited for:\n%s", out)
	}

	// Something is under way, which is an exit code of its own.
	if out, err := c.tryDocumented(t, "Why a namespace does not open, or does not go away", words); err == nil || !strings.Contains(out, `waiting for initializer "broken.example.com"`) {
		t.Errorf("it does not tell who is waited for: %v\n%s", err, out)
	}

	c.runDocumented(t, "Let it miss its deadline", words)
	configured := func() []v1alpha1.RegisteredInitializer {
		configuration, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(t.Context(), stored.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return configuration.Initializers
	}
	if first := configured()[0]; first.FailurePolicy == nil || *first.FailurePolicy != v1alpha1.Ignore || *first.TimeoutSeconds != 30 {
		t.Errorf("it has no deadline: %+v", first)
	}
	c.runDocumented(t, "Take it out of its configuration", words)
	if all := configured(); len(all) != 1 || all[0].Name != "works.example.com" {
		t.Errorf("the configuration holds %+v", all)
	}
	c.waitInForce(t)
	other := c.createNamespace(t, c.admin).Name
	if plan := c.waitCurrent(t, other, "works.example.com").Spec.Plan; len(plan) != 1 {
		t.Errorf("a new namespace has the plan %+v", plan)
	}
	// The one that waits keeps its plan, with no deadline.
	if plan := c.waitCurrent(t, namespace, "broken.example.com").Spec.Plan; len(plan) != 2 || plan[0].FailurePolicy != nil {
		t.Errorf("the namespace that waits has the plan %+v", plan)
	}

	c.runDocumented(t, "Skip it in one namespace", words)
	record := c.waitCurrent(t, namespace, "works.example.com")
	if entry := record.Status.Initializers[0]; entry.State != v1alpha1.InitializerSkipped || entry.LastActor != "kubernetes-admin" {
		t.Errorf("its entry is %+v", entry)
	}
	if out, err := c.tryDocumented(t, "Skip it in one namespace", words); err == nil || !strings.Contains(out, `does not wait for initializer "broken.example.com", but for works.example.com`) {
		t.Errorf("skipping it again: %v\n%s", err, out)
	}

	c.runDocumented(t, "Disable a configuration", words)
	eventually(t, "the configuration counts who waits for it", func(ctx context.Context) error {
		configuration, err := c.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, stored.Name, metav1.GetOptions{})
		if err == nil && (configuration.Status.Phase != v1alpha1.ConfigurationTerminating || configuration.Status.PendingNamespaces != 2) {
			err = fmt.Errorf("phase %s, %d pending", configuration.Status.Phase, configuration.Status.PendingNamespaces)
		}
		return err
	})
	c.waitInForce(t)
	c.waitReady(t, c.createNamespace(t, c.admin).Name)
	for _, name := range []string{namespace, other} {
		c.removeFirst(t, name)
		c.waitReady(t, name)
	}
}

// TestCanI: kubectl auth can-i, as docs/operate.md says to ask, tells what really happens.
func TestCanI(t *testing.T) {
	c := connect(t)
	namespace := c.held(t, c.admin).Name
	c.user(t, "e2e-can", initialize(namespace), everything(), rbacv1.PolicyRule{
		APIGroups: []string{"nsinit.dev"}, Resources: []string{"initializers"}, ResourceNames: []string{"hold.example.com"}, Verbs: []string{"initialize"}})
	c.user(t, "e2e-cannot", everything())
	c.bindInitialize(t, namespace, "e2e-cannot")
	lines := strings.Split(strings.TrimSpace(c.documented(t, "Who may do what")), "\n")
	for user, want := range map[string][]string{
		"e2e-can":    {"yes", "yes", "yes"},
		"e2e-cannot": {"no", "no", "yes"},
	} {
		for i, line := range lines {
			line = strings.NewReplacer("NAMESPACE", namespace, "INITIALIZER", "hold.example.com").Replace(strings.TrimPrefix(line, "kubectl "))
			out, err := c.kubectl(append(strings.Fields(line), "--as="+user)...)
			if got := strings.TrimSpace(out); got != want[i] || (err == nil) != (got == "yes") {
				t.Errorf("%s, as %s: %q, want %s (%v)", line, user, got, want[i], err)
			}
		}
		err := writeConfigMap(t.Context(), kubernetes.NewForConfigOrDie(c.as(user)), namespace)
		if (err == nil) != (want[0] == "yes") {
			t.Errorf("as %s: %v", user, err)
		}
	}
}

// TestAggregatedRoles: whoever may view a cluster sees configurations and records, and may not
// change them; so may its editors and administrators.
func TestAggregatedRoles(t *testing.T) {
	c := connect(t)
	for _, role := range []string{"view", "edit", "admin"} {
		user := "e2e-" + role
		binding, err := c.core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: uniqueName("e2e")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.core.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
		})
		eventually(t, role+" includes nsinit:view", func(ctx context.Context) error {
			client := versioned.NewForConfigOrDie(c.as(user)).NsinitV1alpha1()
			if _, err := client.NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{}); err != nil {
				return err
			}
			_, err := client.NamespaceLifecycles().List(ctx, metav1.ListOptions{})
			return err
		})
		for _, question := range []string{"create namespaceinitializerconfigurations", "update namespacelifecycles", "initialize namespaces", "open namespaces"} {
			out, _ := c.kubectl(append([]string{"auth", "can-i", "--all-namespaces", "--as=" + user}, strings.Fields(question)...)...)
			if got := strings.TrimSpace(out); got != "no" {
				t.Errorf("can %s %s: %q", role, question, got)
			}
		}
	}
}
